//! Lists and resumed watches against a made-up API server: what has changed, doubt, and two watches of pods.

mod api;

use std::sync::Arc;

use api::{Api, NODES, PODS, node, node_name, pod};
use jiff::{SignedDuration, Timestamp};
use spokeshave_kube::{Bearer, Connection, Endpoint, KubeCluster, KubeWatches, Login};
use spokeshave_model::{Kind, core::Pod};
use spokeshave_ports::{
    Change, Changes, Cluster, Key, Place, Watch,
    watch::{BOUND_PODS, Positions, WatchEvent},
};
use spokeshave_scheduling::ClusterView;
use spokeshave_warm::{Cache, Kinds, Wanted};

#[derive(Clone)]
struct At(String);

impl Login for At {
    async fn endpoint(&self) -> Result<Endpoint, String> {
        Ok(Endpoint { url: self.0.clone(), certificate_authority: String::new() })
    }

    async fn token(&self, _: Timestamp) -> Result<Option<Bearer>, String> {
        Ok(None)
    }
}

fn client(api: &Api) -> Arc<KubeCluster<At>> {
    Arc::new(KubeCluster::new(Connection::new(At(api.url()))))
}

/// Pods on ten nodes; more than are listed each time.
fn with_pods(n: usize) -> Api {
    let api = Api::start();
    for it in 0..n {
        api.put(PODS, pod(it, 0, &node_name(it % 10)));
    }
    api
}

fn names(changes: &Changes<Pod>) -> Vec<&str> {
    changes.objects.iter().map(|it| it.metadata.name.as_str()).collect()
}

#[tokio::test]
async fn what_has_changed_is_told_from_where_the_last_answer_ended() {
    let api = with_pods(1200);
    let cluster = client(&api);
    let first = cluster.changes::<Pod>(Place::default(), 0).await.expect("listed");
    assert!(first.whole && first.gone.is_empty());
    assert_eq!((first.objects.len(), first.place.count), (1200, 1200));
    assert_eq!(first.place.version, api.version());
    assert_eq!(
        api.requests(),
        [
            "/api/v1/pods?&limit=500",
            "/api/v1/pods?&limit=500&continue=500",
            "/api/v1/pods?&limit=500&continue=1000"
        ]
    );
    // Who wrote which field is most of an object, and is not kept.
    assert!(first.objects.iter().all(|it| it.metadata.rest.is_empty()));

    api.put(PODS, pod(7, 0, &node_name(3)));
    api.put(PODS, pod(2000, 0, &node_name(3)));
    let version = api.remove(PODS, "shop", "web-0-9");
    let next = cluster.changes::<Pod>(first.place, version).await.expect("followed");
    assert!(!next.whole);
    assert_eq!(names(&next), ["web-0-2000", "web-0-7"]);
    assert_eq!(next.gone.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["web-0-9"]);
    assert_eq!(next.place.version, version);
    let requests = api.requests();
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(request.contains("watch=true"), "{request}");
    assert!(request.contains(&format!("resourceVersion={}", first.place.version)), "{request}");

    // Nothing more has happened.
    let same = cluster.changes::<Pod>(next.place, version).await.expect("followed");
    assert_eq!((same.whole, same.objects.len(), same.place), (false, 0, next.place));
}

#[tokio::test]
async fn few_objects_and_places_of_others_are_listed() {
    let api = with_pods(100);
    let cluster = client(&api);
    let first = cluster.changes::<Pod>(Place::default(), 0).await.expect("listed");
    assert!(cluster.changes::<Pod>(first.place, 0).await.expect("listed").whole);
    api.put(PODS, pod(100, 0, ""));
    let more = cluster.changes::<Pod>(first.place, 0).await.expect("listed");
    assert_eq!((more.whole, more.place.count), (true, 101));
    assert!(!cluster.changes::<Pod>(more.place, 0).await.expect("followed").whole);
    let other = client(&api);
    assert!(other.changes::<Pod>(more.place, 0).await.expect("listed").whole);
}

#[tokio::test]
async fn in_doubt_everything_is_read_again() {
    let api = with_pods(150);
    let cluster = client(&api);
    let first = cluster.changes::<Pod>(Place::default(), 0).await.expect("listed");
    let rebuilt = async |what: &str, reach: u64| {
        let again = cluster.changes::<Pod>(first.place, reach).await.expect("listed");
        assert!(again.whole, "{what}");
        assert_eq!(again.objects.len(), 150, "{what}");
        assert_eq!(again.place.version, api.version(), "{what}");
    };
    // An object that cannot be read.
    api.garble(true);
    let version = api.put(PODS, pod(3, 0, &node_name(4)));
    rebuilt("a bad event", 0).await;
    api.garble(false);
    // A watch that ends before it has told what it must.
    api.cut_watches_short(true);
    rebuilt("cut short", version + 1).await;
    let next = cluster.changes::<Pod>(first.place, version).await.expect("followed");
    assert!(!next.whole, "what must be told was told");
    api.cut_watches_short(false);
    // 410: too long ago.
    api.put(PODS, pod(4, 0, &node_name(4)));
    api.forget_history();
    rebuilt("too old", 0).await;
}

fn same(a: &ClusterView, b: &ClusterView) {
    let pods = |it: &ClusterView| {
        let mut pods: Vec<_> = it.bound_pods().map(|it| (it.key(), it.clone())).collect();
        pods.extend(it.unbound.iter().map(|(key, it)| (key.clone(), it.clone())));
        pods.sort_by(|a, b| a.0.cmp(&b.0));
        pods
    };
    assert_eq!(pods(a), pods(b));
    assert_eq!(a.nodes, b.nodes);
}

#[tokio::test] // scheduling 18.6: a view that is kept is the one that a new process reads
async fn a_kept_view_is_what_a_new_one_would_be() {
    let api = with_pods(600);
    for n in 0..150 {
        api.put(NODES, node(n));
    }
    let cluster = client(&api);
    let mut cache = Cache::default();
    cache.follow(&*cluster, Kinds::default(), &Wanted::default()).await.expect("it answers");
    api.requests();
    for round in 0..3 {
        let mut version = 0;
        for n in 0..30 {
            let at = round * 31 + n * 7;
            version = match n % 3 {
                0 => api.put(PODS, pod(at, 1, &node_name(n))),
                1 => api.remove(PODS, "shop", &format!("web-0-{at}")),
                _ => api.put(PODS, pod(at, 0, if n % 2 == 0 { "" } else { "ip-elsewhere" })),
            };
        }
        api.put(NODES, node(200 + round));
        let key =
            Key { kind: "Pod".into(), resource_version: version.to_string(), ..Key::default() };
        let wanted = Wanted::keys_of([&key]);
        cache.follow(&*cluster, Kinds::default(), &wanted).await.expect("it answers");
        assert!(cache.has_reached(&wanted), "{round}");
        let n_lists =
            api.requests().iter().filter(|it| it.starts_with("/api/v1/pods?&limit")).count();
        assert_eq!(n_lists, 0, "pods are followed");
        let mut new = Cache::default();
        new.follow(&*cluster, Kinds::default(), &Wanted::default()).await.expect("it answers");
        same(&cache.view, &new.view);
        api.requests();
        let ahead = Key { resource_version: (version + 1_000).to_string(), ..key };
        assert!(!cache.has_reached(&Wanted::keys_of([&ahead])));
    }
}

async fn events(
    watches: &KubeWatches<At>,
    mut enough: impl FnMut(&WatchEvent) -> bool,
) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    loop {
        let event = watches.next(SignedDuration::from_secs(20)).await.expect("it watches");
        let event = event.expect("more was to come");
        let done = enough(&event);
        events.push(event);
        if done {
            return events;
        }
    }
}

fn bookmark_of(position: &'static str) -> impl FnMut(&WatchEvent) -> bool {
    move |it| matches!(it, WatchEvent::Bookmark { kind, .. } if *kind == position)
}

#[tokio::test]
async fn pods_are_watched_twice_and_each_watch_has_its_place() {
    let api = Api::start();
    api.put(PODS, pod(1, 0, "ip-1"));
    let watches = KubeWatches::new(client(&api));
    let from: Positions = [("Pod".to_owned(), api.version().to_string())].into();
    watches.start(&from).await.expect("it starts");
    let listed = events(&watches, bookmark_of(BOUND_PODS)).await;
    let n_pods = listed.iter().filter(
        |it| matches!(it, WatchEvent::Listed(Change::Pod { new: Some(it), .. }) if it.is_bound()),
    );
    assert_eq!(n_pods.count(), 1, "only the bound ones are listed: {listed:?}");

    api.put(PODS, pod(2, 0, ""));
    let bound_at = api.put(PODS, pod(2, 0, "ip-1"));
    let mut pods = Vec::new();
    let mut both = |it: &WatchEvent| {
        if let WatchEvent::Changed(change @ Change::Pod { .. }) = it {
            pods.push((change.position(), change.resource_version().to_owned(), change.clone()));
        }
        pods.len() == 3
    };
    events(&watches, &mut both).await;
    let at = |position: &str| -> Vec<(bool, String)> {
        let of = pods.iter().filter(|it| it.0 == position);
        of.map(|it| (matches!(it.2, Change::Pod { new: Some(_), .. }), it.1.clone())).collect()
    };
    let (created_at, bound_at) = ((bound_at - 1).to_string(), bound_at.to_string());
    assert_eq!(at("Pod"), [(true, created_at), (false, bound_at.clone())]);
    assert_eq!(at(BOUND_PODS), [(true, bound_at)]);
}

#[tokio::test]
async fn watches_go_on_after_the_server_was_away_and_begin_anew_when_it_forgot() {
    let api = Api::start();
    api.put(NODES, node(1));
    let watches = KubeWatches::new(client(&api));
    watches.start(&Positions::new()).await.expect("it starts");
    events(&watches, bookmark_of("Node")).await;
    let sees = |n: usize| {
        move |it: &WatchEvent| {
            let (WatchEvent::Changed(change) | WatchEvent::Listed(change)) = it else {
                return false;
            };
            matches!(change, Change::Node { new: Some(it), .. } if it.metadata.name == node_name(n))
        }
    };
    api.go_away();
    api.put(NODES, node(2));
    api.come_back();
    let back = events(&watches, sees(2)).await;
    assert!(matches!(back.last(), Some(WatchEvent::Changed(_))), "it went on where it was");

    api.go_away();
    api.put(NODES, node(3));
    api.forget_history();
    api.come_back();
    let anew = events(&watches, sees(3)).await;
    let restarted = anew.iter().any(|it| matches!(it, WatchEvent::Restarted { kind: "Node" }));
    assert!(restarted, "{anew:?}");
    assert!(matches!(anew.last(), Some(WatchEvent::Listed(_))));
}
