//! Where trigger mode can stand, and the ways to a protected row that do not name its table.

use super::fixture::{installed, number, refused_as, refused_then_over, run, session, with_token};

#[tokio::test]
async fn what_is_not_a_table_of_the_user_is_refused_clearly() {
    let (_server, admin) = installed().await;
    run(
        &admin,
        "CREATE TABLE plain (n int); CREATE VIEW seen AS SELECT * FROM plain;
        CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain; CREATE SEQUENCE counter;
        CREATE TABLE whole (n int) PARTITION BY RANGE (n);
        CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10);
        CREATE FOREIGN DATA WRAPPER far; CREATE SERVER away FOREIGN DATA WRAPPER far;
        CREATE FOREIGN TABLE elsewhere (n int) SERVER away;
        CREATE TABLE mixed (n int) PARTITION BY RANGE (n);
        CREATE FOREIGN TABLE half PARTITION OF mixed FOR VALUES FROM (0) TO (10) SERVER away",
    )
    .await;
    for target in [
        "seen",
        "kept",
        "counter",
        "elsewhere",
        "part",
        "mixed",
        "pg_class",
        "leasehold.fence",
        "information_schema.sql_features",
    ] {
        assert_eq!(
            refused_as(&admin, &format!("SELECT leasehold.protect('{target}')")).await,
            "42809",
            "{target}"
        );
    }
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect('plain', 'none')").await, "42703");
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect('plain', 'ctid')").await, "42703");
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect(NULL)").await, "22004");
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect('plain', NULL, NULL)").await, "22004");
    assert_eq!(refused_as(&admin, "SELECT leasehold.protect('nowhere')").await, "42P01");
}

#[tokio::test]
async fn a_write_straight_into_a_partition_is_caught_also_into_one_that_came_later() {
    let (_server, admin) = installed().await;
    run(&admin, "CREATE TABLE whole (n int, name text) PARTITION BY RANGE (n);
        CREATE TABLE low PARTITION OF whole FOR VALUES FROM (0) TO (10);
        SELECT leasehold.protect('whole', 'name');
        CREATE TABLE high PARTITION OF whole FOR VALUES FROM (10) TO (20);
        CREATE TABLE top (n int, name text); ALTER TABLE whole ATTACH PARTITION top FOR VALUES FROM (20) TO (30)").await;
    run(&admin, "SELECT leasehold.seal('a', 34)").await;
    for (table, n) in [("whole", 1), ("low", 1), ("high", 11), ("top", 21)] {
        let insert = format!("INSERT INTO {table} VALUES ({n}, 'a'), ({n}, 'a')");
        assert_eq!(refused_as(&admin, &insert).await, "LH003", "{table}");
        assert_eq!(
            refused_then_over(&admin, &with_token("a", 33, &insert)).await,
            "LH001",
            "{table}"
        );
        assert_eq!(
            refused_then_over(&admin, &with_token("b", 34, &insert)).await,
            "LH006",
            "{table}"
        );
        run(&admin, &with_token("a", 34, &insert)).await;
        for write in [format!("UPDATE {table} SET n = n"), format!("DELETE FROM {table}")] {
            assert_eq!(refused_as(&admin, &write).await, "LH003", "{write}");
            assert_eq!(
                refused_then_over(&admin, &with_token("a", 33, &write)).await,
                "LH001",
                "{write}"
            );
            run(&admin, &with_token("a", 34, &write)).await;
        }
    }
    // A row that moves between partitions.
    run(&admin, &with_token("a", 34, "INSERT INTO whole VALUES (1, 'a'); UPDATE whole SET n = 11"))
        .await;
    assert_eq!(number(&admin, "SELECT count(*) FROM high").await, Some(1));
}

#[tokio::test]
async fn a_truncate_is_caught_on_partitions_that_the_last_call_has_seen() {
    let (_server, admin) = installed().await;
    run(
        &admin,
        "CREATE TABLE whole (n int) PARTITION BY RANGE (n);
        CREATE TABLE low PARTITION OF whole FOR VALUES FROM (0) TO (10);
        SELECT leasehold.protect('whole')",
    )
    .await;
    assert_eq!(refused_as(&admin, "TRUNCATE low").await, "LH003");
    assert_eq!(refused_as(&admin, "TRUNCATE whole").await, "LH003");
    run(&admin, "CREATE TABLE high PARTITION OF whole FOR VALUES FROM (10) TO (20)").await;
    // The limit that the guide names, and its remedy.
    run(&admin, "TRUNCATE high; SELECT leasehold.protect('whole')").await;
    assert_eq!(refused_as(&admin, "TRUNCATE high").await, "LH003");
    run(&admin, &with_token("a", 5, "TRUNCATE whole; TRUNCATE high")).await;
    run(&admin, "SELECT leasehold.unprotect('whole'); TRUNCATE low, high").await;
}

#[tokio::test]
async fn a_cascade_from_another_table_needs_a_token() {
    let (_server, admin) = installed().await;
    run(&admin, "CREATE TABLE customer (id int PRIMARY KEY);
        CREATE TABLE bill (id int, customer int REFERENCES customer ON DELETE CASCADE ON UPDATE CASCADE);
        INSERT INTO customer VALUES (1), (2); INSERT INTO bill VALUES (1, 1), (2, 2);
        SELECT leasehold.protect('bill')").await;
    for write in [
        "DELETE FROM customer WHERE id = 1",
        "UPDATE customer SET id = 3 WHERE id = 1",
        "TRUNCATE customer CASCADE",
    ] {
        assert_eq!(refused_as(&admin, write).await, "LH003", "{write}");
    }
    assert_eq!(number(&admin, "SELECT count(*) FROM bill").await, Some(2));
    run(&admin, &with_token("a", 5, "DELETE FROM customer WHERE id = 1")).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM bill").await, Some(1));
}

#[tokio::test]
async fn a_view_and_a_parent_are_ways_to_the_same_rows() {
    let (_server, admin) = installed().await;
    run(
        &admin,
        "CREATE TABLE parent (n int); CREATE TABLE child () INHERITS (parent);
        CREATE VIEW seen AS SELECT * FROM child; INSERT INTO child VALUES (1);
        SELECT leasehold.protect('child')",
    )
    .await;
    for write in [
        "UPDATE seen SET n = 2",
        "UPDATE parent SET n = 2",
        "DELETE FROM parent",
        "TRUNCATE parent",
    ] {
        assert_eq!(refused_as(&admin, write).await, "LH003", "{write}");
        run(&admin, &with_token("a", 5, &format!("SAVEPOINT s; {write}; ROLLBACK TO s"))).await;
    }
    // The parent's own rows are nobody's.
    run(&admin, "INSERT INTO parent VALUES (1); DELETE FROM ONLY parent").await;
    // The other way round: a protected parent guards what is written through it.
    run(&admin, "SELECT leasehold.unprotect('child'); SELECT leasehold.protect('parent')").await;
    assert_eq!(refused_as(&admin, "UPDATE parent SET n = 2").await, "LH003");
    run(&admin, "UPDATE child SET n = 2").await;
}

#[tokio::test]
async fn what_replication_applies_was_guarded_where_it_came_from() {
    let (server, admin) = installed().await;
    run(&admin, "CREATE TABLE plain (n int); SELECT leasehold.protect('plain')").await;
    let applying = session(&server).await;
    run(&applying, "SET session_replication_role = replica; INSERT INTO plain VALUES (1)").await;
    assert_eq!(refused_as(&admin, "INSERT INTO plain VALUES (1)").await, "LH003");
    // As the guide has it for whoever replicates nothing into the table.
    run(&admin, "ALTER TABLE plain ENABLE ALWAYS TRIGGER leasehold_fence").await;
    assert_eq!(refused_as(&applying, "INSERT INTO plain VALUES (2)").await, "LH003");
    run(&applying, &with_token("a", 5, "INSERT INTO plain VALUES (3)")).await;
    let enabled = "SELECT count(*) FROM leasehold.protected WHERE enabled";
    assert_eq!(number(&admin, enabled).await, Some(1));
}
