//! Tables of streams, and streams cut anywhere.

use super::*;
use proptest::prelude::*;

fn blocks(stream: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    Parser::default().read(stream.as_bytes(), &mut blocks).expect("within the bounds");
    blocks
}

fn block(id: &str, event: &str, data: Option<&str>) -> Block {
    Block { id: id.into(), event: event.into(), data: data.map(str::to_owned) }
}

#[test]
fn streams_and_what_they_say() {
    let table: &[(&str, &[Block])] = &[
        ("", &[]),
        ("\n\n\n", &[]),
        (": a comment\n\n", &[]),
        ("id: 1\nevent: granted\ndata: {}\n\n", &[block("1", "granted", Some("{}"))]),
        ("id:1\nevent:granted\ndata:{}\n\n", &[block("1", "granted", Some("{}"))]),
        ("id:  1\n\n", &[block(" 1", "", None)]),
        ("data: a\ndata: b\ndata\n\n", &[block("", "", Some("a\nb\n"))]),
        (
            "data: a\r\n\r\ndata: b\r\rdata: c\n\n",
            &[block("", "", Some("a")), block("", "", Some("b")), block("", "", Some("c"))],
        ),
        // The id stays for later blocks, the kind does not.
        (
            "id: 7\nevent: x\ndata: a\n\ndata: b\n\n",
            &[block("7", "x", Some("a")), block("7", "", Some("b"))],
        ),
        // An id alone moves on; a kind alone is nothing.
        ("id: 7\n\nevent: x\n\ndata: b\n\n", &[block("7", "", None), block("7", "", Some("b"))]),
        ("id: 7\n:keep-alive\n\n", &[block("7", "", None)]),
        ("id: a\0b\ndata: x\n\n", &[block("", "", Some("x"))]),
        ("retry: 5\nunknown: 5\nunknown\ndata: x\n\n", &[block("", "", Some("x"))]),
        ("\u{feff}data: x\n\n", &[block("", "", Some("x"))]),
        ("data: a: b\n\n", &[block("", "", Some("a: b"))]),
        // What is cut off is no event.
        ("data: x\n", &[]),
        ("id: 1\ndata: x\n\nid: 2\ndata: y\n", &[block("1", "", Some("x"))]),
    ];
    for (stream, expected) in table {
        assert_eq!(&blocks(stream), expected, "{stream:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_read_all_the_same() {
    let mut blocks = Vec::new();
    Parser::default().read(b"data: \xff\xfe\n\n", &mut blocks).expect("within the bounds");
    assert_eq!(blocks, [block("", "", Some("\u{fffd}\u{fffd}"))]);
}

#[test]
fn a_stream_without_end_is_given_up_and_what_came_before_is_kept() {
    let mut parser = Parser::default();
    let mut blocks = Vec::new();
    parser.read(b"data: x\n\n", &mut blocks).expect("within the bounds");
    parser.read(&vec![b'x'; LINE_BYTES_MAX], &mut blocks).expect("the longest line");
    assert_eq!(parser.read(b"x", &mut blocks), Err(Broken::LineTooLong));
    assert_eq!(blocks.len(), 1);

    let line = format!("data: {}\n", "x".repeat(60_000));
    let mut parser = Parser::default();
    let outcomes: Vec<_> = (0..5).map(|_| parser.read(line.as_bytes(), &mut blocks)).collect();
    assert_eq!(outcomes.last(), Some(&Err(Broken::DataTooLong)));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 4);
}

#[test]
fn empty_lines_of_data_are_bounded_too() {
    let mut parser = Parser::default();
    let lines = "data:\n".repeat(DATA_BYTES_MAX + 2);
    assert_eq!(parser.read(lines.as_bytes(), &mut Vec::new()), Err(Broken::DataTooLong));
}

/// Pieces out of which most streams, and all their corners, can be put together.
fn stream() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("id: 12".to_owned()),
        Just("event: granted".to_owned()),
        Just("data: {\"a\": \"é\"}".to_owned()),
        Just("data".to_owned()),
        Just(": alive".to_owned()),
        "[ -~]{0,8}",
    ];
    let end = prop_oneof![Just("\n"), Just("\r"), Just("\r\n"), Just("\n\n"), Just("\r\n\r\n")];
    prop::collection::vec((piece, end), 0..24)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| format!("{line}{end}")).collect())
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = stream.as_bytes();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut parser, mut pieces) = (Parser::default(), Vec::new());
        for piece in cuts.windows(2) {
            parser.read(&bytes[piece[0]..piece[1]], &mut pieces).expect("within the bounds");
        }
        prop_assert_eq!(pieces, blocks(&stream));
    }

    #[test]
    fn what_is_written_is_read(
        written in prop::collection::vec(("[0-9]{1,4}", "[a-z_]{1,8}", "[ -~é\n]{0,40}"), 0..8),
        end in prop_oneof![Just("\n"), Just("\r"), Just("\r\n")],
    ) {
        let mut stream = String::new();
        for (id, event, data) in &written {
            let data = data.replace('\n', &format!("{end}data: "));
            stream.push_str(&format!("id: {id}{end}event: {event}{end}data: {data}{end}{end}"));
        }
        let expected: Vec<_> =
            written.iter().map(|(id, event, data)| block(id, event, Some(data))).collect();
        prop_assert_eq!(blocks(&stream), expected);
    }
}
