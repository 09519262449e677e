# Sourced by .ci/test and .ci/run: where things are kept, and the servers that tests speak to.
# Everything that is downloaded or built is kept outside the checkout, so that a second run is quick.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"
cache="${SPOKESHAVE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spokeshave}"
if ! mkdir -p "$cache" 2>/dev/null; then
	cache="$(mktemp -d)"
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}"
export RUSTC_WRAPPER="${RUSTC_WRAPPER-$root/.ci/rustc-wrapper}"
# Everything is built once and thrown away: what incremental builds keep would only fill the disk.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
servers="$(mktemp -d)"
began="$SECONDS"

step() { printf '\n== %s (at %d s)\n' "$1" "$((SECONDS - began))"; }

need() {
	for command in "$@"; do
		command -v "$command" >/dev/null && continue
		echo "$command is needed and not there" >&2
		exit 1
	done
}

# A Python environment of its own per purpose: their pins do not fit together. Made again when the pins change.
environment() { # name, file with pins
	local directory="$cache/python-$1" sum
	sum="$(sha256sum <"$2")"
	if [ "$(cat "$directory/pins" 2>/dev/null)" != "$sum" ]; then
		rm -rf "$directory"
		python3 -m venv "$directory"
		"$directory/bin/pip" --quiet --disable-pip-version-check install -r "$2"
		printf '%s' "$sum" >"$directory/pins"
	fi
}

# The control plane of tests, built once per change of its sources.
control_plane() {
	local sum
	sum="$(cat tests/control-plane/go.mod tests/control-plane/go.sum tests/control-plane/main.go | sha256sum | cut -c1-16)"
	binary="$cache/control-plane-$sum"
	if [ ! -x "$binary" ]; then
		need go
		(cd tests/control-plane && go build -trimpath -buildvcs=false -ldflags "-s -w \
			-X k8s.io/component-base/version.gitVersion=v1.34.2 \
			-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" -o "$binary.new" .)
		mv "$binary.new" "$binary"
	fi
}

# Helm, from the Go module proxy: a file per version, so that a new pin is installed beside the old one.
helm_version=v3.19.0
install_helm() {
	helm="$cache/tools/bin/helm-$helm_version"
	if [ ! -x "$helm" ]; then
		need go
		mkdir -p "$cache/tools/bin" "$cache/tools/go"
		GOBIN="$cache/tools/go" GOFLAGS=-trimpath go install -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$helm_version"
		mv "$cache/tools/go/helm" "$helm"
	fi
}

stop_servers() {
	tests/control-plane/down "$servers/control-plane"
	if [ -f "$servers/emulator.pid" ]; then
		kill "$(cat "$servers/emulator.pid")" 2>/dev/null || true
	fi
	rm -rf "$servers"
}

start_servers() {
	trap stop_servers EXIT
	need python3 curl openssl
	step "AWS emulator"
	environment emulator tests/emulator/requirements.txt
	environment deploy .ci/requirements.txt
	AWS_DEFAULT_REGION=us-west-2 "$cache/python-deploy/bin/python" tests/emulator/translate.py template.yaml "$servers/template.json"
	local port
	port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
	"$cache/python-emulator/bin/python" tests/emulator/server.py "$port" "$servers/emulator.ready" "$servers/template.json" \
		>"$servers/emulator.log" 2>&1 </dev/null &
	echo $! >"$servers/emulator.pid"
	if [ -n "${KUBECONFIG:-}" ]; then
		step "Kubernetes API server: the one of KUBECONFIG"
	else
		step "Kubernetes API server"
		control_plane
		tests/control-plane/up "$binary" "$servers/control-plane"
		export KUBECONFIG="$servers/control-plane/kubeconfig"
	fi
	for _ in $(seq 1 240); do
		test -f "$servers/emulator.ready" && break
		sleep 0.5
	done
	if [ ! -f "$servers/emulator.ready" ]; then
		tail -n 30 "$servers/emulator.log" >&2
		exit 1
	fi
	AWS_ENDPOINT_URL="$(cat "$servers/emulator.ready")"
	export AWS_ENDPOINT_URL
	# Made-up credentials, and no look-up of others.
	export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-west-2 AWS_EC2_METADATA_DISABLED=true
	export SPOKESHAVE_FUNCTIONS="$CARGO_TARGET_DIR/debug"
}

# The functions, and the example that measures. With an example the features are those of tests, so nothing is built twice.
build_binaries() {
	cargo build --quiet --workspace --bins --example big_cluster --features spokeshave-tests/wire
}
