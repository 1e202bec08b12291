//! The stored bytes, pinned. A diff in `golden/` is a change of format: either a mistake, or a new
//! version with a way to read the old one.

use super::samples;
use super::*;
use leasehold_core::Command;
use std::fmt::Write as _;
use std::path::PathBuf;

const REWRITE: &str = "LEASEHOLD_REWRITE_GOLDEN";

/// Compares named encodings with the golden file, one line each.
fn check(file: &str, encodings: &[(String, Vec<u8>)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    let mut text = String::new();
    for (name, bytes) in encodings {
        write!(text, "{name} ").expect("a string grows");
        bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string grows"));
        text.push('\n');
    }
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, &text).expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file is there");
    assert!(
        golden == text,
        "the bytes of {file} changed; if that is meant, run the test once with {REWRITE}=1"
    );
}

fn each<T>(
    values: &[T],
    name: impl Fn(&T) -> String,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Vec<(String, Vec<u8>)> {
    values.iter().map(|value| (name(value), encode(value))).collect()
}

fn first_word(debug: &str) -> String {
    debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn appended(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

#[test]
fn log_entries_keep_their_bytes() {
    let singles = samples::commands().into_iter().map(|command| crate::types::Entry {
        log_id: samples::log_id(9, 301),
        payload: crate::types::Payload::Normal(samples::batch(vec![command])),
    });
    let entries: Vec<_> = samples::entries().into_iter().chain(singles).collect();
    let name = |entry: &crate::types::Entry| match &entry.payload {
        crate::types::Payload::Normal(batch) if batch.commands.len() == 1 => {
            first_word(&format!("{:?}", batch.commands[0]))
        }
        payload => payload.type_str().to_owned(),
    };
    check("entry.hex", &each(&entries, name, |e| appended(|out| encode_entry(e, out))));
    for entry in entries {
        let bytes = appended(|out| encode_entry(&entry, out));
        assert_eq!(decode_entry(&bytes).expect("it was just written"), entry);
        assert_eq!(peek_entry(&bytes).expect("it was just written").log_id, entry.log_id);
    }
}

#[test]
fn snapshot_rows_keep_their_bytes() {
    let rows = samples::rows();
    let name = |row: &_| first_word(&format!("{row:?}"));
    check("row.hex", &each(&rows, name, |row| appended(|out| encode_row(row, out))));
    for row in rows {
        let bytes = appended(|out| encode_row(&row, out));
        assert_eq!(decode_row(&bytes).expect("it was just written"), row);
    }
}

#[test]
fn history_records_keep_their_bytes() {
    let record = samples::record(41, "payments/invoice/42", "worker-1", 1_767_225_630_000);
    let bytes = appended(|out| encode_record(&record, out));
    assert_eq!(decode_record(&bytes).expect("it was just written"), record);
    check("record.hex", &[("Record".into(), bytes)]);
}

#[test]
fn what_raft_keeps_keeps_its_bytes() {
    let (vote, id, head) = (samples::vote(), samples::log_id(9, 301), samples::slot_head());
    let encodings = [encode_vote(&vote), encode_log_id(id), encode_slot(&head)];
    assert_eq!(decode_vote(&encodings[0]).expect("it was just written"), vote);
    assert_eq!(decode_log_id(&encodings[1]).expect("it was just written"), id);
    assert_eq!(decode_slot(&encodings[2]).expect("it was just written"), head);
    let names = ["Vote", "LogId", "Slot"].map(str::to_owned);
    check("raft.hex", &names.into_iter().zip(encodings).collect::<Vec<_>>());
}

#[test]
fn an_unknown_version_says_what_this_binary_reads() {
    let mut bytes = encode_vote(&samples::vote());
    bytes[0] = 7;
    let error = decode_vote(&bytes).expect_err("version 7 does not exist");
    assert_eq!(error.to_string(), "a vote of version 7; this binary reads version 1");
    assert!(matches!(decode_log_id(&[]), Err(DecodeError::Empty { what: "log id" })));
}

#[test]
fn no_damage_makes_a_decoder_panic() {
    let encodings = [
        appended(|out| encode_entry(&samples::entries()[1], out)),
        appended(|out| encode_record(&samples::record(1, "a", "b", 2), out)),
        encode_slot(&samples::slot_head()),
    ];
    let rows = samples::rows().into_iter().map(|row| appended(|out| encode_row(&row, out)));
    for bytes in encodings.into_iter().chain(rows) {
        for cut in 0..bytes.len() {
            decode_anything(&bytes[..cut]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, !bytes[at]] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                decode_anything(&damaged);
            }
        }
    }
}

fn decode_anything(bytes: &[u8]) {
    let _ = decode_entry(bytes);
    let _ = decode_record(bytes);
    let _ = decode_row(bytes);
    let _ = decode_slot(bytes);
    let _ = decode_vote(bytes);
}

#[test]
fn a_flipped_bit_in_a_log_entry_is_noticed() {
    let bytes = appended(|out| encode_entry(&samples::entries()[1], out));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(decode_entry(&damaged).is_err(), "byte {at} may change unnoticed");
        assert!(peek_entry(&damaged).is_err(), "byte {at} may change unnoticed");
    }
}

#[test]
fn changes_and_deeds_keep_their_bytes() {
    let changes = samples::changes();
    let name = |change: &crate::change::Change| first_word(&format!("{:?}", change.kind));
    let one = |change: &crate::change::Change| {
        appended(|out| encode_changes(std::slice::from_ref(change), out))
    };
    let mut encodings = each(&changes, name, one);
    encodings.push(("Block".into(), appended(|out| encode_changes(&changes, out))));
    let back = decode_changes(880, &encodings[changes.len()].1).expect("it was just written");
    assert_eq!(back, changes);

    for record in samples::deeds() {
        let bytes = appended(|out| encode_audit(77, &record, out));
        assert_eq!(decode_audit(&bytes).expect("it was just written"), (77, record.clone()));
        encodings.push((format!("Deed{:?}", record.result), bytes));
    }
    check("changes.hex", &encodings);
    for (_, bytes) in encodings {
        for cut in 0..bytes.len() {
            let _ = (decode_changes(1, &bytes[..cut]), decode_audit(&bytes[..cut]));
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] = !damaged[at];
            let _ = (decode_changes(1, &damaged), decode_audit(&damaged));
        }
    }
}

#[test]
fn messages_between_peers_keep_their_bytes() {
    let head = samples::slot_head();
    let totals = crate::state::Totals {
        chunks: head.chunks,
        rows: head.rows,
        bytes: head.bytes,
        digest: head.digest,
        level: head.level,
    };
    let snapshot = SnapshotAsk { vote: samples::vote(), meta: head.meta, totals };
    let parcel = samples::parcel();
    let append = crate::types::AppendAsk {
        vote: samples::vote(),
        prev_log_id: Some(samples::log_id(9, 300)),
        entries: samples::entries(),
        leader_commit: Some(samples::log_id(9, 299)),
    };
    let dating = Dating { answered: 300, quorum_ms: Some(150) };
    let reach = crate::history::Reach { ended: (1_767_225_630_000, 41), revision: 900 };
    let encodings = [
        ("Hello", encode_hello(&samples::hello())),
        ("Welcome", encode_welcome(&samples::welcome())),
        ("Snapshot", encode_snapshot(&snapshot)),
        ("Parcel", encode_parcel(&parcel)),
        ("Chunk", encode_chunk(b"a chunk")),
        ("Reach", encode_told(&Told::Reach(reach))),
        ("GoOn", encode_told(&Told::GoOn)),
        ("Installed", encode_told(&Told::Snapshot(samples::vote()))),
        ("DigestsAsk", encode_digests_ask()),
        ("Digests", encode_told(&Told::Digests(samples::digests()))),
        ("Unable", encode_told(&Told::Unable("it is stopping".to_owned()))),
        ("StatusAsk", encode_status_ask(&samples::status_ask())),
        ("Status", encode_told(&Told::Status(Box::new(samples::report())))),
        ("Append", encode_append(&append, dating).0),
    ];
    let encodings = encodings.map(|(name, bytes)| (name.to_owned(), bytes));
    check("peer.hex", &encodings);

    assert_eq!(decode_hello(&encodings[0].1).expect("just written"), samples::hello());
    assert_eq!(decode_welcome(&encodings[1].1).expect("just written"), samples::welcome());
    assert!(matches!(decode_ask(&encodings[2].1, 3), Ok(Ask::Snapshot(back)) if back == snapshot));
    assert!(matches!(decode_ask(&encodings[3].1, 3), Ok(Ask::Parcel(back)) if back == parcel));
    assert!(matches!(decode_told(&encodings[5].1), Ok(Told::Reach(back)) if back == reach));
    let asked = decode_ask(&encodings[11].1, 3);
    assert!(matches!(asked, Ok(Ask::Status(back)) if back == samples::status_ask()));
    let told = decode_told(&encodings[12].1);
    assert!(matches!(told, Ok(Told::Status(back)) if *back == samples::report()));
    let back = decode_ask(&encodings[13].1, 3);
    let same = |back: &crate::types::AppendAsk| format!("{back:?}") == format!("{append:?}");
    assert!(matches!(back, Ok(Ask::Append(back, dated)) if same(&back) && dated == dating));
    for (name, bytes) in encodings {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(decode_ask(&damaged, 3).is_err(), "{name}: byte {at} may change unnoticed");
            assert!(decode_told(&damaged).is_err(), "{name}: byte {at} may change unnoticed");
            assert!(decode_ask(&bytes[..at], 3).is_err() && decode_told(&bytes[..at]).is_err());
        }
    }
}

#[test]
fn backups_keep_their_bytes() {
    let (head, piece, end) = (samples::backup_head(), samples::parcel(), samples::backup_end());
    let encodings = [
        ("Head", appended(|out| encode_backup_head(&head, out))),
        ("Piece", appended(|out| encode_backup_piece(&piece, out))),
        ("End", appended(|out| encode_backup_end(&end, out))),
        ("Frames", samples::backup_frames()),
    ];
    assert_eq!(decode_backup_head(&encodings[0].1).expect("it was just written"), head);
    assert_eq!(decode_backup_piece(&encodings[1].1).expect("it was just written"), piece);
    assert_eq!(decode_backup_end(&encodings[2].1).expect("it was just written"), end);
    let encodings = encodings.map(|(name, bytes)| (name.to_owned(), bytes));
    check("backup.hex", &encodings);
    for (_, bytes) in &encodings {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] = !damaged[at];
            for bytes in [&damaged[..], &bytes[..at]] {
                let _ = (decode_backup_head(bytes), decode_backup_end(bytes));
                let _ = decode_backup_piece(bytes);
            }
        }
    }
}

/// A sum that is right says nothing about what was summed.
#[test]
fn a_parcel_whose_rows_do_not_add_up_is_refused() {
    let good = encode_parcel(&samples::parcel());
    let resealed = |mut bytes: Vec<u8>| {
        let crc = crc32fast::hash(&bytes[5..]);
        bytes[1..5].copy_from_slice(&crc.to_le_bytes());
        decode_ask(&bytes, 3)
    };
    assert!(resealed(good.clone()).is_ok());
    let longer = [&good[..], b"x"].concat();
    assert!(matches!(resealed(longer), Err(DecodeError::Trailing { bytes: 1, .. })));
    resealed(good[..good.len() - 1].to_vec()).expect_err("a row is cut off");
    for at in 6..good.len() {
        let mut other = good.clone();
        other[at] = !other[at];
        let _ = resealed(other);
    }
}

/// Whoever is too old must be told so, not that the bytes are damaged.
#[test]
fn what_takes_a_newer_node_says_so_before_it_is_understood() {
    let raise = crate::types::Entry {
        log_id: samples::log_id(9, 301),
        payload: crate::types::Payload::Normal(samples::batch(vec![Command::RaiseLevel { to: 7 }])),
    };
    let mut bytes = appended(|out| encode_entry(&raise, out));
    assert_eq!(peek_entry(&bytes).expect("whole").needs, 7);
    assert_eq!(decode_known_entry(&bytes, 7).expect("known"), raise);
    // As if the commands inside were none that this build has.
    let last = bytes.len() - 2;
    bytes[last] = 0xee;
    let crc = crc32fast::hash(&bytes[5..]);
    bytes[1..5].copy_from_slice(&crc.to_le_bytes());
    let error = decode_known_entry(&bytes, 6).expect_err("6 is below 7");
    assert_eq!(
        error.to_string(),
        "a log entry with commands of version 7; this binary knows them up to 6"
    );
    assert!(matches!(decode_known_entry(&bytes, 7), Err(DecodeError::Malformed { .. })));
    assert_eq!(peek_entry(&bytes).expect("its head is whole").log_id, raise.log_id);

    let head = samples::slot_head();
    let totals = crate::state::Totals { level: head.level, ..crate::state::Totals::default() };
    let snapshot = encode_snapshot(&SnapshotAsk { vote: samples::vote(), meta: head.meta, totals });
    let refused = decode_ask(&snapshot, 2);
    assert!(matches!(refused, Err(DecodeError::Commands { needs: 3, knows: 2, .. })));
}

/// Newer releases may append to what is said before anything is agreed on.
#[test]
fn a_greeting_may_end_with_what_a_newer_release_added() {
    let longer = |bytes: Vec<u8>| {
        let mut bytes = [&bytes[..], b"more"].concat();
        let crc = crc32fast::hash(&bytes[5..]);
        bytes[1..5].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let hello = longer(encode_hello(&samples::hello()));
    assert_eq!(decode_hello(&hello).expect("the rest is passed over"), samples::hello());
    let welcome = longer(encode_welcome(&samples::welcome()));
    assert_eq!(decode_welcome(&welcome).expect("the rest is passed over"), samples::welcome());
}
