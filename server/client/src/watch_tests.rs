//! What a connection counts for once it is cut.

use super::*;

fn reader() -> Reader {
    let client = Client::new("http://127.0.0.1:1").expect("a URL");
    Reader {
        client,
        filter: WatchFilter::All,
        position: Some("8".to_owned()),
        link: None,
        ready: VecDeque::new(),
        broken: None,
        failures: 3,
        connected: true,
        begun: Instant::now(),
    }
}

fn block(id: &str, event: &str, data: Option<&str>) -> Block {
    Block { id: id.to_owned(), event: event.to_owned(), data: data.map(str::to_owned) }
}

const GRANTED: &str =
    r#"{"revision":"10","event":"granted","happened_at":"1970-01-01T00:00:00.000Z"}"#;
const GAP: &str = r#"{"from":"8","to":"20"}"#;

#[tokio::test]
async fn only_what_is_told_makes_up_for_failures() {
    let mut reader = reader();
    // A server that is stopping tells where it stands, and no more.
    reader.block(block("9", "", None)).expect("legal");
    assert_eq!((reader.failures, reader.position.as_deref()), (3, Some("9")));
    reader.cut(Ended::cut("it stopped"));
    assert_eq!(reader.failures, 4);

    for (event, data) in [("granted", GRANTED), (Gap::EVENT, GAP)] {
        reader.failures = 4;
        reader.block(block("", event, Some(data))).expect("legal");
        assert_eq!(reader.failures, 0, "{event}");
    }
    // Nor does it help to tell the same again.
    reader.failures = 4;
    reader.block(block("10", "granted", Some(GRANTED))).expect("legal");
    assert_eq!((reader.failures, reader.ready.len()), (4, 2));
}

#[test]
fn a_connection_that_lasted_starts_the_count_anew() {
    assert_eq!(failures_after(7, Duration::ZERO), 8);
    assert_eq!(failures_after(7, GOOD), 1);
    assert_eq!(failures_after(u32::MAX, Duration::ZERO), u32::MAX);
}
