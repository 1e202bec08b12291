//! Trigger mode on one table: what it lets through, what it refuses, and how the refusal reads.

use leasehold_harness::json;
use leasehold_harness::postgres::Postgres;
use tokio_postgres::Client;

use super::fixture::{
    backend, noticed, number, refused, refused_as, refused_then_over, run, session, state,
    until_blocked, with_invoices, with_token,
};

async fn protected(arguments: &str) -> (Postgres, Client) {
    let (server, admin) = with_invoices().await;
    run(&admin, &format!("SELECT leasehold.protect('invoice'{arguments})")).await;
    (server, admin)
}

#[tokio::test]
async fn every_kind_of_write_needs_a_token_and_a_read_does_not() {
    let (_server, admin) = protected("").await;
    for write in [
        "INSERT INTO invoice VALUES (9, 'x', 0)",
        "INSERT INTO invoice VALUES (1, 'x', 0) ON CONFLICT (id) DO UPDATE SET total = 1",
        "UPDATE invoice SET total = 1",
        "UPDATE invoice SET total = 1 WHERE false",
        "DELETE FROM invoice",
        "TRUNCATE invoice",
        "WITH w AS (DELETE FROM invoice RETURNING id) SELECT count(*) FROM w",
    ] {
        let (state, detail) = refused(&admin, write).await;
        assert_eq!(
            (state.as_str(), &detail),
            ("LH003", &json!({"code": "token_required"})),
            "{write}"
        );
        assert_eq!(
            refused_then_over(
                &admin,
                &format!("BEGIN; SET LOCAL leasehold.resource = 'a'; {write}")
            )
            .await,
            "LH003"
        );
        run(&admin, &with_token("a", 5, &format!("SAVEPOINT s; {write}; ROLLBACK TO s"))).await;
    }
    // The settings end with the transaction, and what they leave behind is no token.
    assert_eq!(refused_as(&admin, "UPDATE invoice SET total = 1").await, "LH003");
    assert_eq!(number(&admin, "SELECT sum(total)::bigint FROM invoice").await, Some(0));
    run(&admin, "SELECT leasehold.unprotect('invoice'); UPDATE invoice SET total = 1").await;
}

#[tokio::test]
async fn the_refusal_shows_the_two_lines_that_are_missing() {
    let (_server, admin) = protected("").await;
    let error = admin.batch_execute("DELETE FROM invoice").await.expect_err("it is refused");
    let hint = error.as_db_error().and_then(|error| error.hint()).expect("there is a hint");
    assert!(
        hint.contains("SET LOCAL leasehold.resource = 'the name'; SET LOCAL leasehold.token = "),
        "{hint}"
    );
}

#[tokio::test]
async fn a_merge_and_a_copy_are_writes() {
    let (_server, admin) = protected("").await;
    let copy = r"COPY invoice FROM PROGRAM 'printf 7\\ta\\t0'";
    assert_eq!(refused_as(&admin, copy).await, "LH003");
    run(&admin, &with_token("a", 5, copy)).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM invoice").await, Some(3));
    if number(&admin, "SELECT current_setting('server_version_num')::bigint").await >= Some(150_000)
    {
        let merge = "MERGE INTO invoice AS i USING (VALUES (1)) AS n (id) ON i.id = n.id
            WHEN MATCHED THEN UPDATE SET total = 1 WHEN NOT MATCHED THEN INSERT VALUES (n.id, 'x', 0)";
        assert_eq!(refused_as(&admin, merge).await, "LH003");
        run(&admin, &with_token("a", 5, merge)).await;
    }
}

#[tokio::test]
async fn a_stale_token_is_refused_with_both_tokens() {
    let (_server, admin) = protected("").await;
    run(&admin, "SELECT leasehold.seal('invoice/1', 34)").await;
    let (state, detail) =
        refused(&admin, &with_token("invoice/1", 33, "DELETE FROM invoice")).await;
    assert_eq!(state, "LH001");
    assert_eq!(
        detail,
        json!({"code": "stale_token", "resource": "invoice/1", "token": 33, "highest_token": 34})
    );
    run(&admin, "ROLLBACK").await;
    run(
        &admin,
        &with_token("invoice/1", 34, "UPDATE invoice SET total = 1; UPDATE invoice SET total = 2"),
    )
    .await;
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(2));
}

#[tokio::test]
async fn a_setting_that_is_no_token_is_refused() {
    let (_server, admin) = protected("").await;
    for token in [
        "0",
        "-1",
        "+5",
        " 5",
        "05",
        "5 ",
        "0x5",
        "5_0",
        "1e3",
        "5.0",
        "34abc",
        "9007199254740992",
        "99999999999999999999",
    ] {
        let write = format!(
            "BEGIN; SET LOCAL leasehold.resource = 'a'; SET LOCAL leasehold.token = '{token}'; DELETE FROM invoice"
        );
        assert_eq!(refused_then_over(&admin, &write).await, "LH004", "{token}");
    }
    let shared = "SET LOCAL leasehold.mode = 'shared'; DELETE FROM invoice";
    assert_eq!(refused_then_over(&admin, &with_token("a", 5, shared)).await, "LH005");
    let late =
        "UPDATE invoice SET total = 1; SET LOCAL leasehold.mode = 'shared'; DELETE FROM invoice";
    assert_eq!(refused_then_over(&admin, &with_token("a", 5, late)).await, "LH005");
    let exclusive = "SET LOCAL leasehold.mode = 'exclusive'; UPDATE invoice SET total = 1";
    run(&admin, &with_token("a", 5, exclusive)).await;
}

#[tokio::test]
async fn a_strict_table_takes_a_token_for_one_transaction() {
    let (_server, admin) = protected(", strict => true").await;
    let two = "UPDATE invoice SET total = 1; UPDATE invoice SET total = 2";
    run(&admin, &with_token("a", 5, two)).await;
    assert_eq!(refused_then_over(&admin, &with_token("a", 5, two)).await, "LH002");
    run(&admin, &with_token("a", 6, two)).await;
    // A lax table before it in the same transaction uses nothing up, and vouches for nothing.
    run(&admin, "CREATE TABLE lax (n int); SELECT leasehold.protect('lax')").await;
    let both = "INSERT INTO lax VALUES (1); UPDATE invoice SET total = 3";
    assert_eq!(refused_then_over(&admin, &with_token("a", 6, both)).await, "LH002");
    run(&admin, &with_token("a", 7, both)).await;
}

#[tokio::test]
async fn what_a_savepoint_takes_back_is_checked_again() {
    let (server, admin) = protected("").await;
    let other = session(&server).await;
    run(
        &admin,
        "BEGIN; SET LOCAL leasehold.resource = 'a'; SET LOCAL leasehold.token = '33';
        SAVEPOINT s; UPDATE invoice SET total = 1; ROLLBACK TO s",
    )
    .await;
    run(&other, "SELECT leasehold.seal('a', 34)").await;
    assert_eq!(refused_then_over(&admin, "UPDATE invoice SET total = 1").await, "LH001");
}

#[tokio::test]
async fn a_pass_is_for_one_transaction_one_token_and_one_resource() {
    let (_server, admin) = protected("").await;
    run(
        &admin,
        "SELECT leasehold.seal('b', 34); SET leasehold.resource = 'a'; SET leasehold.token = '33'",
    )
    .await;
    run(&admin, "UPDATE invoice SET total = 1").await;
    run(&admin, "SELECT leasehold.seal('a', 34)").await;
    assert_eq!(refused_as(&admin, "UPDATE invoice SET total = 1").await, "LH001");
    let switched = "UPDATE invoice SET total = 2; SET LOCAL leasehold.resource = 'b'; UPDATE invoice SET total = 3";
    assert_eq!(refused_then_over(&admin, &with_token("c", 33, switched)).await, "LH001");
    let switched = "UPDATE invoice SET total = 2; SET LOCAL leasehold.token = '32'; UPDATE invoice SET total = 3";
    assert_eq!(refused_then_over(&admin, &with_token("c", 33, switched)).await, "LH001");
}

#[tokio::test]
async fn a_statement_that_began_before_an_older_write_ended_is_told_to_run_again() {
    let (server, admin) = protected("").await;
    let (old, new) = (session(&server).await, session(&server).await);
    for (older, newer, sealed) in [(33, 34, false), (43, 44, true)] {
        if sealed {
            run(&old, &format!("SELECT leasehold.seal('a', {older})")).await;
        }
        let write =
            with_token("a", older, &format!("INSERT INTO invoice VALUES ({older}, 'a', 7)"));
        run(&old, write.strip_suffix("COMMIT").expect("it ends so")).await;
        let new_backend = backend(&new).await;
        let sum = format!("INSERT INTO invoice SELECT {newer}, 'a', sum(total) FROM invoice");
        let sum = with_token("a", newer, &sum);
        let (result, ()) = tokio::join!(new.batch_execute(&sum), async {
            until_blocked(&admin, new_backend).await;
            run(&old, "COMMIT").await;
        });
        assert_eq!(state(&result.expect_err("its snapshot is too old")), "40001", "{sealed}");
        run(&new, "ROLLBACK").await;
        run(&new, &sum).await;
    }
    // Each sum saw the older holder's row: 7, then 7 + 7 + 7.
    assert_eq!(number(&admin, "SELECT total FROM invoice WHERE id = 44").await, Some(21));
}

#[tokio::test]
async fn two_sessions_of_one_holder_take_turns_and_both_pass() {
    let (server, admin) = protected("").await;
    let (one, other) = (session(&server).await, session(&server).await);
    run(&admin, "SELECT leasehold.seal('a', 5)").await;
    let write = with_token("a", 5, "UPDATE invoice SET total = total + 1");
    run(&one, write.strip_suffix("COMMIT").expect("it ends so")).await;
    let other_backend = backend(&other).await;
    tokio::join!(run(&other, &write), async {
        until_blocked(&admin, other_backend).await;
        run(&one, "COMMIT").await;
    });
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(2));
}

#[tokio::test]
async fn with_a_column_a_row_of_another_resource_is_out_of_reach() {
    let (_server, admin) = protected(", 'resource'").await;
    for (write, rightful) in [
        ("UPDATE invoice SET total = 5 WHERE id = 2", "UPDATE invoice SET total = 5 WHERE id = 1"),
        (
            "UPDATE invoice SET resource = 'invoice/2' WHERE id = 1",
            "UPDATE invoice SET resource = 'invoice/1'  WHERE id = 1",
        ),
        (
            "UPDATE invoice SET resource = 'invoice/1' WHERE id = 2",
            "UPDATE invoice SET id = 8 WHERE id = 1",
        ),
        (
            "INSERT INTO invoice VALUES (3, 'invoice/2', 0)",
            "INSERT INTO invoice VALUES (3, 'invoice/1', 0)",
        ),
        (
            "INSERT INTO invoice VALUES (4, NULL, 0)",
            "INSERT INTO invoice VALUES (4, 'invoice/1', 0)",
        ),
        ("DELETE FROM invoice", "DELETE FROM invoice WHERE resource = 'invoice/1'"),
    ] {
        let (state, detail) = refused(&admin, &with_token("invoice/1", 5, write)).await;
        assert_eq!(
            (state.as_str(), &detail["code"]),
            ("LH006", &json!("wrong_resource")),
            "{write}"
        );
        run(&admin, "ROLLBACK").await;
        run(&admin, &with_token("invoice/1", 5, rightful)).await;
    }
    assert_eq!(number(&admin, "SELECT sum(id)::bigint FROM invoice").await, Some(2));
}

#[tokio::test]
async fn the_column_may_be_generated_and_renamed_and_ignore_case() {
    let (_server, admin) = with_invoices().await;
    run(
        &admin,
        "CREATE TABLE bill (id int, name text GENERATED ALWAYS AS ('bill/' || id::text) STORED);
        SELECT leasehold.protect('bill', 'name'); ALTER TABLE bill RENAME COLUMN name TO lock",
    )
    .await;
    run(&admin, &with_token("bill/7", 5, "INSERT INTO bill VALUES (7)")).await;
    assert_eq!(
        refused_then_over(&admin, &with_token("bill/7", 5, "INSERT INTO bill VALUES (8)")).await,
        "LH006"
    );
    assert_eq!(
        refused_then_over(&admin, &with_token("BILL/7", 5, "DELETE FROM bill")).await,
        "LH006"
    );
}

#[tokio::test]
async fn the_view_names_what_is_protected_and_a_second_call_replaces_the_first() {
    let (_server, admin) = protected("").await;
    let sql = "SELECT count(*) FROM leasehold.protected
        WHERE target = 'invoice'::regclass AND enabled AND strict AND resource_column = 'resource'";
    assert_eq!(number(&admin, sql).await, Some(0));
    run(&admin, "SELECT leasehold.protect('invoice', 'resource', true)").await;
    assert_eq!(number(&admin, sql).await, Some(1));
    run(&admin, "ALTER TABLE invoice DISABLE TRIGGER USER").await;
    assert_eq!(number(&admin, sql).await, Some(0));
    run(&admin, "SELECT leasehold.protect('invoice'); SELECT leasehold.unprotect('invoice'); SELECT leasehold.unprotect('invoice')").await;
    assert_eq!(number(&admin, "SELECT count(*) FROM leasehold.protected").await, Some(0));
    assert_eq!(
        number(&admin, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'leasehold%'").await,
        Some(0)
    );
}

/// Whatever reaches the rows of other resources beside the one that is locked.
#[tokio::test]
async fn with_a_column_no_statement_reaches_the_rows_of_others() {
    let (_server, admin) = protected(", 'resource'").await;
    let truncate = with_token("invoice/42", 34, "TRUNCATE invoice");
    assert_eq!(refused_then_over(&admin, &truncate).await, "LH006");
    run(&admin, "CREATE TABLE parent (name text); CREATE TABLE child () INHERITS (parent)").await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect('parent', 'name')").await, "42809");
    run(&admin, "CREATE TABLE odd (\"100% of\" text)").await;
    run(&admin, "SELECT leasehold.protect('odd', '100% of')").await;
    let other = with_token("a", 1, "INSERT INTO odd VALUES ('b')");
    assert_eq!(refused_then_over(&admin, &other).await, "LH006");
}

#[tokio::test]
async fn a_table_that_becomes_a_partition_later_stays_protected() {
    let (_server, admin) = protected("").await;
    run(
        &admin,
        "CREATE TABLE late (n int); SELECT leasehold.protect('late');
        CREATE TABLE whole (n int) PARTITION BY RANGE (n);
        ALTER TABLE whole ATTACH PARTITION late FOR VALUES FROM (0) TO (10)",
    )
    .await;
    assert_eq!(refused_as(&admin, "INSERT INTO whole VALUES (1)").await, "LH003");
}

/// Token and resource are told apart: `5` with `a b` is not `5 a` with `b`.
#[tokio::test]
async fn what_has_passed_passes_for_the_same_resource_alone() {
    let (_server, admin) = protected("").await;
    run(
        &admin,
        "CREATE TABLE whole (n int) PARTITION BY RANGE (n);
        CREATE TABLE low PARTITION OF whole FOR VALUES FROM (0) TO (10);
        SELECT leasehold.protect('whole')",
    )
    .await;
    let confused = "BEGIN; SET LOCAL leasehold.resource = 'a b'; SET LOCAL leasehold.token = '5';
        INSERT INTO low VALUES (1);
        SET LOCAL leasehold.resource = 'b'; SET LOCAL leasehold.token = '5 a';
        INSERT INTO low VALUES (2)";
    assert_eq!(refused_then_over(&admin, confused).await, "LH004");
}

#[tokio::test]
async fn protecting_less_than_before_warns_and_a_column_that_is_no_text_is_told() {
    let (server, admin) = protected(", 'resource', true").await;
    let calls = [
        ("'invoice', 'resource', true", None),
        (
            "'invoice', 'id', true",
            Some(("NOTICE", "column \"id\" of public.invoice is of type integer")),
        ),
        ("'invoice', 'resource'", Some(("WARNING", "strict true"))),
        ("'invoice', 'resource', true", None),
        ("'invoice'", Some(("WARNING", "column resource and strict true"))),
        ("'invoice'", None),
    ];
    for (arguments, wanted) in calls {
        let told = noticed(&server, &format!("SELECT leasehold.protect({arguments})")).await;
        let Some((severity, message)) = wanted else {
            assert_eq!(told, [], "{arguments}");
            continue;
        };
        assert_eq!(told.len(), 1, "{arguments}: {told:?}");
        assert_eq!(told[0].0, severity, "{told:?}");
        assert!(told[0].1.contains(message), "{arguments}: {told:?}");
    }
    // The last call counts.
    let sql =
        "SELECT count(*) FROM leasehold.protected WHERE resource_column IS NULL AND NOT strict";
    assert_eq!(number(&admin, sql).await, Some(1));
}
