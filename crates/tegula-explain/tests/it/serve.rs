//! Requests of browsers, of other sites' pages, and malformed ones.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tegula_core::element::Type;
use tegula_explain::page::Selection;
use tegula_explain::serve::Server;
use tegula_kernels::{Plain, PlainKind};

use crate::full;

fn address() -> SocketAddr {
    static AT: OnceLock<SocketAddr> = OnceLock::new();
    *AT.get_or_init(start_server)
}

/// Sends bytes, closes the writing half, and returns the status and the whole response.
fn send(bytes: &[u8]) -> (u16, String) {
    let stream = connect();
    // The server may already have closed the connection.
    _ = (&stream).write_all(bytes);
    _ = stream.shutdown(Shutdown::Write);
    response(stream)
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn response(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), text)
}

fn get(path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect();
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    response(stream)
}

fn host() -> String {
    format!("Host: {}\r\n", address())
}

#[test]
fn server_binds_loopback_only() {
    assert!(address().ip().is_loopback());
}

#[test]
fn page_and_launches_are_served() {
    let (status, page) = get("/", &host());
    assert!(status == 200 && page.contains("<!doctype html>") && page.contains("x-frame-options: DENY"));
    let query = "/product?kernel=tiled&tile=4&mapping=x-row&dtype=i32&mistake=no-guards&m=5&n=6&k=7";
    let (status, product) = get(query, &host());
    assert!(status == 200 && product.len() > 2000, "{product}");
    assert_eq!(get("/product", &format!("{}Origin: http://{}\r\n", host(), address())).0, 200);
    assert_eq!(get("/product", &format!("Host: localhost:{}\r\n", address().port())).0, 200);
    assert_eq!(get("/nowhere", &host()).0, 404);
}

#[test]
fn foreign_requests_are_rejected() {
    let foreign = [
        "Host: example.org\r\n".to_string(),
        format!("Host: example.org:{}\r\n", address().port()),
        "Host: 127.0.0.1\r\n".to_string(),
        format!("Host: 127.0.0.1.example.org:{}\r\n", address().port()),
        format!("{}{}", host(), host()),
        String::new(),
        format!("{}Origin: http://example.org\r\n", host()),
        format!("{}Origin: null\r\n", host()),
        format!("{}Origin: https://{}\r\n", host(), address()),
        format!("{}Sec-Fetch-Site: cross-site\r\n", host()),
        format!("{}Sec-Fetch-Site: same-site\r\n", host()),
    ];
    for headers in foreign {
        for path in ["/", "/product"] {
            assert_eq!(get(path, &headers).0, 403, "{path} {headers}");
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        assert_eq!(
            send(format!("{method} / HTTP/1.1\r\n{}Content-Length: 0\r\nConnection: close\r\n\r\n", host()).as_bytes())
                .0,
            405,
            "{method}"
        );
    }
}

#[test]
fn parameters_out_of_range_are_rejected() {
    let invalid = [
        "m=0",
        "m=65",
        "n=99999999999999999999",
        "k=-1",
        "k=1e3",
        "m=",
        "tile=0",
        "tile=33",
        "tile=%32",
        "dtype=f128",
        "dtype=pred",
        "mapping=y",
        "kernel=register",
        "mistake=none",
        "mistake=missing-first-barrier&kernel=naive",
        "m=4&m=4",
        "seed=1",
        "=",
        "m=<script>alert(1)</script>",
    ];
    for query in invalid {
        let (status, text) = get(&format!("/product?{query}"), &host());
        assert_eq!(status, 400, "{query}");
        assert!(!text.contains("<script>") || text.contains("text/plain"), "{text}");
    }
    // Every valid launch fits into a trace.
    let largest = ["tile=32", "kernel=naive&tile=2", "tile=2"];
    for largest in &largest[..if full() { 3 } else { 1 }] {
        assert_eq!(get(&format!("/product?{largest}&m=64&n=64&k=64"), &host()).0, 200, "{largest}");
    }
}

#[test]
fn malformed_requests_are_rejected() {
    let long = [b"GET /".as_slice(), &[b'a'; 100_000], b" HTTP/1.1\r\n\r\n"].concat();
    let nonsense: [&[u8]; 9] = [
        b"",
        b"\r\n\r\n",
        b"\0\x01\x02\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        &long,
    ];
    for bytes in nonsense {
        assert_ne!(send(bytes).0, 200);
    }
    assert_eq!(get("/", &host()).0, 200);
}

#[test]
fn fifty_concurrent_clients_are_served() {
    // Idle connections that send nothing.
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address()).unwrap()).collect();
    let clients: Vec<_> = (0..50)
        .map(|i| thread::spawn(move || get(&format!("/product?tile=4&m={}&n=5&k=6", 1 + i % 8), &host()).0))
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    drop(idle);
}

/// The slowest launch.
const LONGEST: &str = "/product?kernel=naive&tile=2&dtype=f64&m=64&n=64&k=64";

#[test]
#[ignore = "long; .ci/run runs it"]
fn canceled_launches_do_not_delay_the_page() {
    let address = start_server();
    // More than the queue holds.
    for _ in 0..150 {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {LONGEST} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    }
    let start = Instant::now();
    assert_eq!(get_from(address, "/"), 200);
    let page = start.elapsed();
    assert_eq!(get_from(address, "/product?tile=2&m=4&n=4&k=4"), 200);
    let product = start.elapsed();
    println!("the page after {page:?}, a product after {product:?}");
    assert!(page < Duration::from_secs(2), "{page:?}");
    // Running traces end at their next cancellation check; waiting ones leave the queue.
    assert!(product < Duration::from_secs(30), "{product:?}");
}

#[test]
fn full_queue_rejects_launches_but_serves_the_page() {
    let address = start_server();
    let waiting: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    for mut stream in &waiting {
        write!(stream, "GET {LONGEST} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    let start = Instant::now();
    assert_eq!(get_from(address, "/"), 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    // Requests are rejected while the first still run, in any order: connections have threads of
    // their own.
    let is_rejected = |stream: &TcpStream| {
        let mut head = *b"HTTP/1.1 000";
        stream.peek(&mut head).is_ok() && head == *b"HTTP/1.1 503"
    };
    while !waiting.iter().any(is_rejected) {
        assert!(start.elapsed() < Duration::from_secs(10), "no launch is rejected");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a server for a single test.
fn start_server() -> SocketAddr {
    let server =
        Server::bind(0, Selection { plain: Plain::new(PlainKind::Tiled, Type::F32, 2), extents: [4; 3] }).unwrap();
    let at = server.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    thread::spawn(move || server.run());
    at
}

fn get_from(address: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    response(stream).0
}
