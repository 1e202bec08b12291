//! Large bodies and many connections.

#![allow(clippy::print_stdout, reason = "what was measured is for whoever runs the tests")]

use super::{put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Client, within};
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const BODY_BYTES: usize = 512 * 1024 * 1024;
/// What the process may grow by while it passes on a body, whatever the length of that.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

#[test]
fn half_a_gigabyte_goes_through_and_is_never_held() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    assert_eq!(proxy.client().get("/warm-up").status, 404);
    let before = peak_kib(proxy.pid());

    let mut stream = TcpStream::connect(proxy.addr()).expect("it listens");
    let head = format!(
        "PUT /large HTTP/1.1\r\nHost: a\r\nFencing-Resource: r\r\nFencing-Token: 1\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let piece: Vec<u8> = (0..1024 * 1024).map(|at| (at % 251) as u8).collect();
    for _ in 0..BODY_BYTES / piece.len() {
        stream.write_all(&piece).expect("sent");
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 201");
    compare(File::open(nginx.file("large")).expect("it is stored"), &piece);

    let mut stream = TcpStream::connect(proxy.addr()).expect("it listens");
    let get = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(get).expect("sent");
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    compare(stream, &piece);
    let grown = peak_kib(proxy.pid()).saturating_sub(before);
    println!("512 MiB each way: the proxy's memory peaked {grown} KiB above {before} KiB");
    assert!(grown < GROWTH_KIB_MAX, "it grew by {grown} KiB");
}

#[test]
fn a_thousand_connections_write_at_once() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let mut clients: Vec<Client> = (0..1000).map(|_| proxy.client()).collect();
    within(Duration::from_secs(60), "all are connected", || {
        (proxy.metric("connections") >= 1000.0).then_some(())
    });
    for (at, client) in clients.iter_mut().enumerate() {
        let resource = format!("resource/{at}");
        client.send(&put(&format!("/many/{at}"), &resource, 7, &resource)).expect("sent");
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.finish().status, 201, "{at}");
    }
    for at in [0, 499, 999] {
        assert_eq!(
            nginx.stored(&format!("many/{at}")),
            Some(format!("resource/{at}").into_bytes())
        );
    }
    println!(
        "1,000 connections, 1,000 resources: {} tokens recorded in {} commits",
        proxy.metric("raises_total"),
        proxy.metric("commits_total")
    );
}

#[test]
fn clients_beyond_the_bound_wait_to_be_accepted() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).flag("--connections-max", "2").start();
    let mut inside = [(); 2].map(|()| proxy.client());
    for client in &mut inside {
        assert_eq!(client.get("/missing").status, 404);
    }
    let mut outside = proxy.client();
    outside.send(b"GET /missing HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
    assert_eq!(inside[0].get("/missing").status, 404);
    assert!(!outside.has_answer());
    assert_eq!(proxy.metric("connections"), 2.0);
    drop(inside);
    assert_eq!(outside.finish().status, 404);
}

/// Reads as many pieces as were sent, and nothing that was not.
#[track_caller]
fn compare(mut from: impl Read, piece: &[u8]) {
    let mut read = vec![0; piece.len()];
    for at in 0..BODY_BYTES / piece.len() {
        from.read_exact(&mut read).expect("all of it");
        assert!(read == piece, "piece {at} is another one");
    }
    assert_eq!(from.read(&mut read).expect("the end"), 0, "there is more");
}

/// Reads the head of an answer and leaves its body.
fn read_head(from: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

/// The most memory that a process ever had.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
