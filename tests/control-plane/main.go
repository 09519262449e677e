// The control plane of tests: `control-plane <part> <flags of that part>`, where a part is etcd, apiserver, scheduler or
// controllers. Each runs as a process of its own, so that a test can kill and restart one of them.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: control-plane etcd|apiserver|scheduler|controllers [flags]")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{"kube-" + part}, os.Args[2:]...)
	switch part {
	case "etcd":
		if err := etcd(); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
	case "apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "controllers":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "unknown part:", part)
		os.Exit(2)
	}
}

// etcd serves one member until it is told to end: `etcd <directory> <client URL> <peer URL>`.
func etcd() error {
	if len(os.Args) != 4 {
		return fmt.Errorf("usage: control-plane etcd <directory> <client URL> <peer URL>")
	}
	client, err := url.Parse(os.Args[2])
	if err != nil {
		return err
	}
	peer, err := url.Parse(os.Args[3])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = os.Args[1]
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "error"
	// Tests lose nothing when the machine loses power.
	config.UnsafeNoFsync = true
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return fmt.Errorf("not ready after a minute")
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-ended:
		return nil
	case err := <-server.Err():
		return err
	}
}
