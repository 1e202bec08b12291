//! Watching over connections that are cut anywhere: every event once and in order, gaps told.

use leasehold_client::wire::{Code, Event, EventKind, Gap, Problem, Time};
use leasehold_client::{Client, Error, Watch, WatchFilter, WatchItem};
use leasehold_client_fake::{Closed, Fake, Received, Reply};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// More than a stream of the tests has; the last one tells that it is through.
const LAST: u64 = 30;

fn event(revision: u64) -> Event<'static> {
    Event {
        resource: Some("a/é".into()),
        client_id: Some("c".into()),
        token: Some(revision),
        ..Event::new(revision, EventKind::Granted, Time(0))
    }
}

fn gap() -> Gap<'static> {
    Gap { from: "12".into(), to: "20".into() }
}

fn written(event: &Event<'_>, end: &str) -> String {
    let data = serde_json::to_string(event).expect("it can be written");
    format!("id: {}{end}event: granted{end}data: {data}{end}{end}", event.revision)
}

/// What a server tells whoever has everything up to `from`.
fn stream_after(from: u64, end: &str) -> String {
    let mut stream = String::new();
    for revision in [9, 10, 12].into_iter().filter(|revision| *revision > from) {
        stream.push_str(&written(&event(revision), end));
        let _ = write!(stream, ": alive{end}{end}");
    }
    if from < 20 {
        let data = serde_json::to_string(&gap()).expect("it can be written");
        let _ = write!(stream, "id: 20{end}event: gap{end}data: {data}{end}{end}");
    }
    if from < 25 {
        let _ = write!(stream, "id: 25{end}{end}");
    }
    if from < LAST {
        stream.push_str(&written(&event(LAST), end));
    }
    stream
}

fn told() -> Vec<WatchItem> {
    let events = [9, 10, 12].map(|revision| WatchItem::Event(event(revision)));
    let mut told = Vec::from(events);
    told.extend([WatchItem::Gap(gap()), WatchItem::Event(event(LAST))]);
    told
}

/// A connection that tells this and then ends, or stays.
fn telling(bytes: &[u8], stays: bool) -> Reply {
    let (sender, pieces) = mpsc::unbounded_channel();
    sender.send(bytes.to_vec()).expect("the receiver is here");
    if stays {
        // Keeps the channel, and so the connection, open for good.
        std::mem::forget(sender);
    }
    Reply::stream(pieces)
}

fn from(received: &Received) -> Option<u64> {
    received.parameter("from")?.parse().ok()
}

fn client(fake: &Fake) -> Client {
    Client::new(fake.url()).expect("a URL")
}

async fn take(watch: &mut Watch, items: usize) -> Vec<WatchItem> {
    let mut taken = Vec::new();
    while taken.len() < items {
        let next = timeout(Duration::from_secs(60), watch.next()).await.expect("it is told");
        let next = next.expect("it goes on");
        taken.push(next.expect("an item"));
    }
    taken
}

/// The first connection ends after `cut` bytes, the second after as many again, and so on.
async fn watch_cut_every(cut: usize, end: &'static str) {
    let fake = Fake::start(move |received| {
        let stream = stream_after(from(received).unwrap_or(0), end);
        let bytes = stream.as_bytes();
        telling(&bytes[..cut.min(bytes.len())], false)
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
    assert_eq!(take(&mut watch, told().len()).await, told(), "cut after {cut} bytes");
}

/// Only the first connection ends, after `cut` bytes.
async fn watch_cut_once(cut: usize, end: &'static str) {
    let mut first = true;
    let fake = Fake::start(move |received| {
        let stream = stream_after(from(received).unwrap_or(0), end);
        let whole = !std::mem::take(&mut first);
        telling(if whole { stream.as_bytes() } else { &stream.as_bytes()[..cut] }, whole)
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
    assert_eq!(take(&mut watch, told().len()).await, told(), "cut after {cut} bytes");
    // Nothing is asked for twice, and nothing is left out.
    let asked: Vec<_> = fake.received().iter().filter_map(from).collect();
    assert_eq!(asked[0], 8);
    assert!(asked.is_sorted(), "{asked:?}");
}

#[tokio::test]
async fn a_cut_at_every_byte_changes_nothing() {
    for end in ["\n", "\r\n", "\r"] {
        let length = stream_after(8, end).len();
        let cuts = (0..=length).map(|cut| watch_cut_once(cut, end));
        futures_util::future::join_all(cuts).await;
    }
}

#[tokio::test]
async fn a_watch_that_is_cut_again_and_again_gets_everything() {
    let longest = written(&event(LAST), "\n").len() + 16;
    let cuts = (longest..longest + 40).map(|cut| watch_cut_every(cut, "\n"));
    futures_util::future::join_all(cuts).await;
}

#[tokio::test]
async fn an_event_that_was_told_is_not_told_again() {
    // A server that begins at the same place whatever it is asked for, and gets further each time.
    let revisions = [9, 10, 12, LAST];
    let stream: String = revisions.map(|revision| written(&event(revision), "\n")).concat();
    let mut reached = 0;
    let fake = Fake::start(move |_| {
        reached += 150;
        telling(&stream.as_bytes()[..reached.min(stream.len())], false)
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("9".to_owned()));
    let later = [10, 12, LAST].map(|revision| WatchItem::Event(event(revision)));
    assert_eq!(take(&mut watch, 3).await, later);
    assert!(fake.received().len() >= 3);
}

#[tokio::test]
async fn a_cut_before_the_first_event_leaves_no_hole() {
    let mut first = true;
    let fake = Fake::start(move |_| {
        let now = std::mem::take(&mut first);
        let stream = if now { String::new() } else { stream_after(8, "\n") };
        telling(stream.as_bytes(), !now).with("Leasehold-Revision", if now { "8" } else { "99" })
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, None);
    assert_eq!(take(&mut watch, told().len()).await, told());
    let asked: Vec<_> = fake.received().iter().map(from).collect();
    assert_eq!(asked, [None, Some(8)]);
}

#[tokio::test]
async fn an_idle_stream_moves_on() {
    let mut first = true;
    let fake = Fake::start(move |_| {
        let now = std::mem::take(&mut first);
        let stream = if now { "id: 17\n\n".to_owned() } else { written(&event(LAST), "\n") };
        telling(stream.as_bytes(), !now)
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::Prefix("a b/".into()), Some("8".to_owned()));
    assert_eq!(take(&mut watch, 1).await, [WatchItem::Event(event(LAST))]);
    let asked: Vec<_> = fake.received().iter().map(|one| one.target.clone()).collect();
    assert_eq!(asked, ["/v1/watch?prefix=a%20b%2F&from=8", "/v1/watch?prefix=a%20b%2F&from=17"]);
}

#[tokio::test]
async fn silence_is_a_cut() {
    let mut first = true;
    let fake = Fake::start(move |_| {
        let now = std::mem::take(&mut first);
        let stream = if now { String::new() } else { written(&event(LAST), "\n") };
        telling(stream.as_bytes(), true)
    });
    let fake = fake.await.expect("a port");
    let client = Client::builder().server(fake.url()).watch_silence(Duration::from_millis(50));
    let mut watch = client.build().expect("legal").watch(WatchFilter::All, Some("8".to_owned()));
    assert_eq!(take(&mut watch, 1).await, [WatchItem::Event(event(LAST))]);
    assert!(fake.received().len() >= 2);
}

#[tokio::test]
async fn a_server_that_cannot_serve_now_is_asked_again_or_another_is() {
    let first = Fake::start(|_| Reply::code(503, Code::NoLeader)).await.expect("a port");
    let second = Fake::start(|_| telling(stream_after(8, "\n").as_bytes(), true)).await;
    let second = second.expect("a port");
    let client = Client::builder().servers([first.url(), second.url()]).build().expect("legal");
    let mut watch = client.watch(WatchFilter::Domain("a".into()), Some("8".to_owned()));
    assert_eq!(take(&mut watch, told().len()).await, told());
    assert_eq!(second.received()[0].target, "/v1/watch?domain=a&from=8");
}

#[tokio::test]
async fn a_gap_is_told_and_leads_back_where_the_service_is_behind() {
    // Restored to an earlier state: the place of the watch has not happened yet.
    let back = Gap { from: "999999".into(), to: "3".into() };
    let data = serde_json::to_string(&back).expect("it can be written");
    let behind = format!("id: 3\nevent: gap\ndata: {data}\n\nid: 4\n\n");
    let fake = Fake::start(move |received| match from(received) {
        Some(999_999) => telling(behind.as_bytes(), false),
        _ => telling(written(&event(9), "\n").as_bytes(), true),
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("999999".to_owned()));
    let told = [WatchItem::Gap(back), WatchItem::Event(event(9))];
    assert_eq!(take(&mut watch, 2).await, told);
    let asked: Vec<_> = fake.received().iter().filter_map(from).collect();
    assert_eq!(asked, [999_999, 4]);
}

#[tokio::test]
async fn a_place_without_data_never_leads_back() {
    let mut first = true;
    let fake = Fake::start(move |_| {
        let now = std::mem::take(&mut first);
        let stream = if now { "id: 3\n\n".to_owned() } else { written(&event(9), "\n") };
        telling(stream.as_bytes(), !now)
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
    assert_eq!(take(&mut watch, 1).await, [WatchItem::Event(event(9))]);
    assert_eq!(fake.received().iter().filter_map(from).collect::<Vec<_>>(), [8, 8]);
}

/// No room for one more watch.
fn full() -> Reply {
    let mut problem = Problem::new(429, Code::Shed, "full");
    (problem.reason, problem.retry_after_ms) = (Some("capacity".into()), Some(1));
    Reply::problem(&problem)
}

#[tokio::test]
async fn a_service_that_is_full_is_asked_again_also_after_a_cut() {
    let mut asked = 0;
    let fake = Fake::start(move |received| {
        asked += 1;
        match asked {
            1 | 3 | 4 => full(),
            2 => telling(written(&event(9), "\n").as_bytes(), false),
            _ => telling(stream_after(from(received).unwrap_or(0), "\n").as_bytes(), true),
        }
    });
    let fake = fake.await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
    assert_eq!(take(&mut watch, told().len()).await, told());
    assert_eq!(fake.received().len(), 5);
}

#[tokio::test]
async fn a_service_that_stays_full_from_the_start_ends_the_watch() {
    let fake = Fake::start(|_| full()).await.expect("a port");
    let client = client(&fake).with_budget(Duration::from_millis(100));
    let mut watch = client.watch(WatchFilter::All, None);
    let error = watch.next().await.expect("an error first").expect_err("full");
    assert!(matches!(error, Error::Shed(_)), "{error:?}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_refusal_ends_the_watch() {
    let fake = Fake::start(|_| Reply::code(400, Code::InvalidRequest)).await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::Resource("r".into()), Some("x".to_owned()));
    let error = watch.next().await.expect("an error first").expect_err("refused");
    assert_eq!(error.code(), Some(Code::InvalidRequest));
    assert_eq!(watch.next().await, None);
    assert_eq!(fake.received()[0].target, "/v1/watch?resource=r&from=x");
}

#[tokio::test]
async fn nobody_there_at_the_start_ends_the_watch() {
    let closed = Closed::new().expect("a port");
    let url = closed.url().expect("an address");
    let client = Client::new(url).expect("a URL").with_budget(Duration::from_millis(100));
    let mut watch = client.watch(WatchFilter::All, None);
    let error = watch.next().await.expect("an error first").expect_err("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn what_cannot_be_read_ends_the_watch_after_what_could() {
    for broken in ["id: 40\ndata: {\n\n".to_owned(), "x".repeat(70_000)] {
        let stream = stream_after(8, "\n") + &broken;
        let fake = Fake::start(move |_| telling(stream.as_bytes(), true)).await.expect("a port");
        let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
        assert_eq!(take(&mut watch, told().len()).await, told());
        let error = watch.next().await.expect("an error").expect_err("not readable");
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        assert_eq!(watch.next().await, None);
    }
}

#[tokio::test]
async fn a_dropped_wait_for_the_next_item_misses_nothing() {
    let (sender, pieces) = mpsc::unbounded_channel();
    let mut stream = Some(Reply::stream(pieces));
    let fake = Fake::start(move |_| stream.take().unwrap_or(Reply::Silence)).await.expect("a port");
    let mut watch = client(&fake).watch(WatchFilter::All, Some("8".to_owned()));
    let mut taken = Vec::new();
    for byte in stream_after(8, "\n").into_bytes() {
        sender.send(vec![byte]).expect("the server takes it");
        tokio::select! {
            biased;
            item = watch.next() => taken.push(item.expect("it goes on").expect("an item")),
            () = tokio::task::yield_now() => {}
        }
    }
    let rest = told().len() - taken.len();
    taken.extend(take(&mut watch, rest).await);
    assert_eq!(taken, told());
    assert_eq!(fake.received().len(), 1);
}
