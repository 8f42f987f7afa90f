//! A loopback HTTP server for the page, which traces launches on request.
//!
//! Only local programs can connect. Scripts of other sites in a local browser are rejected by
//! request headers. *Host* must name this server, which defeats DNS rebinding; *Origin* and
//! *Sec-Fetch-Site*, if present, must name the page itself.
//!
//! Only traces take time. At most `WORKERS` run at once, further ones wait in a bounded queue, and
//! every other request is answered at once. When a client closes its connection, or its writing
//! half, a waiting trace leaves the queue and a running one is canceled: before an answer is sent,
//! a server cannot distinguish a full close from a half close.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{future, io, net};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tegula_core::element::Type;
use tegula_kernels::{Mapping, Plain};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::sync::Semaphore;
use tokio::{task, time};

use crate::error::{Error, Result};
pub use crate::page::MAX_EXTENT;
use crate::page::{self, Catalog, Selection};

/// Traces that run at once.
const WORKERS: usize = 4;

/// Traces that run or wait; further requests are rejected.
const QUEUE: usize = 128;

/// The time limit for a request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A server of one page.
pub struct Server {
    listener: TcpListener,
    runtime: Runtime,
    site: Arc<Site>,
}

/// The page, its address and its queue.
struct Site {
    at: SocketAddr,
    html: Bytes,
    /// Permits to enter the queue, and to run.
    queue: Semaphore,
    running: Arc<Semaphore>,
}

/// A response: status, content type, body.
type Reply = (StatusCode, &'static str, Bytes);

const PLAIN: &str = "text/plain; charset=utf-8";

/// A routed request: an immediate reply, or a launch to trace.
enum Route {
    Reply(Reply),
    Launch(Selection),
}

impl Server {
    /// Creates the page, which opens with `start`, and binds a loopback port; 0 for any free port.
    ///
    /// # Errors
    /// A port in use, or a launch that cannot be traced.
    pub fn bind(port: u16, start: Selection) -> Result<Server> {
        let failed = |error: io::Error| Error::Serve { port, reason: error.to_string() };
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).max_blocking_threads(WORKERS).enable_all().build().map_err(failed)?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        let html = page::html(&Catalog::served(vec![start]), &|_| {})?;
        let (queue, running) = (Semaphore::new(QUEUE), Arc::new(Semaphore::new(WORKERS)));
        Ok(Server { listener, runtime, site: Arc::new(Site { at, html: html.into(), queue, running }) })
    }

    /// The URL of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.site.at)
    }

    /// Answers requests; never returns.
    pub fn run(&self) {
        self.runtime.block_on(async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    // The limit of open files is reached: wait until some are closed.
                    time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let Ok((stream, client)) = duplicate(stream) else { continue };
                let (site, client) = (Arc::clone(&self.site), Arc::new(client));
                let service = service_fn(move |request| respond(Arc::clone(&site), Arc::clone(&client), request));
                let mut http = http1::Builder::new();
                // A client may close its writing half and still read.
                http.half_close(true);
                http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).max_buf_size(1 << 14);
                let connection = http.serve_connection(TokioIo::new(stream), service);
                // An error here means that the client has gone.
                task::spawn(async { _ = connection.await });
            }
        });
    }
}

/// Duplicates a connection: one handle for hyper, one to detect a close.
fn duplicate(stream: TcpStream) -> io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let other = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, TcpStream::from_std(other)?))
}

/// Completes when a client closes its connection, or its writing half.
async fn closed(client: &TcpStream) {
    if let Ok(1..) = client.peek(&mut [0]).await {
        // A pipelined request: the client is still connected.
        future::pending::<()>().await;
    }
}

async fn respond(
    site: Arc<Site>,
    client: Arc<TcpStream>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match site.route(&request) {
        Route::Reply(reply) => reply,
        Route::Launch(selection) => {
            let (mut launch, mut closed) = (pin!(site.launch(selection)), pin!(closed(&client)));
            let canceled =
                || reject(StatusCode::REQUEST_TIMEOUT, "the connection was closed before the launch was traced");
            let either = future::poll_fn(|context| match launch.as_mut().poll(context) {
                Poll::Pending => closed.as_mut().poll(context).map(|()| canceled()),
                ready => ready,
            });
            either.await
        }
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    Ok(response)
}

fn reject(status: StatusCode, reason: &str) -> Reply {
    (status, PLAIN, Bytes::from(reason.to_string()))
}

/// Cancels a trace when its request is dropped.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Site {
    /// Routes a request, without blocking.
    fn route(&self, request: &Request<Incoming>) -> Route {
        Route::Reply(if !self.is_same_origin(request) {
            reject(StatusCode::FORBIDDEN, "requests must come from this page")
        } else if *request.method() != Method::GET {
            reject(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported")
        } else {
            match request.uri().path() {
                "/" => (StatusCode::OK, "text/html; charset=utf-8", self.html.clone()),
                "/product" => match selection(request.uri().query().unwrap_or_default()) {
                    Ok(selection) => return Route::Launch(selection),
                    Err(reason) => reject(StatusCode::BAD_REQUEST, &reason),
                },
                _ => reject(StatusCode::NOT_FOUND, "not found"),
            }
        })
    }

    /// Traces a launch once a worker is free.
    async fn launch(&self, selection: Selection) -> Reply {
        let unavailable = || reject(StatusCode::SERVICE_UNAVAILABLE, "too many requests; try again later");
        let Ok(_queued) = self.queue.try_acquire() else { return unavailable() };
        let Ok(permit) = Arc::clone(&self.running).acquire_owned().await else { return unavailable() };
        let cancel = CancelOnDrop::default();
        let canceled = Arc::clone(&cancel.0);
        let packed = task::spawn_blocking(move || {
            // Held until the work ends, even if the client has gone.
            let _permit = permit;
            selection.packed(&canceled)
        });
        match packed.await {
            Ok(Ok(packed)) => (StatusCode::OK, PLAIN, packed.into()),
            Ok(Err(error)) => reject(StatusCode::BAD_REQUEST, &error.to_string()),
            Err(_) => reject(StatusCode::INTERNAL_SERVER_ERROR, "the launch could not be traced"),
        }
    }

    /// Whether a request names this server and comes from its page, the address bar, or no browser.
    fn is_same_origin(&self, request: &Request<Incoming>) -> bool {
        let header = |name: &str| -> Vec<String> {
            let values = request.headers().get_all(name);
            values.iter().map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase()).collect()
        };
        let port = self.at.port();
        // Browsers leave out the default port.
        let is_this_host = |host: &str| {
            ["127.0.0.1", "localhost"]
                .iter()
                .any(|name| host == format!("{name}:{port}") || port == 80 && host == *name)
        };
        let is_own_origin = |origin: &String| origin.strip_prefix("http://").is_some_and(is_this_host);
        let hosts = header("host");
        hosts.len() == 1
            && is_this_host(&hosts[0])
            && header("origin").iter().all(is_own_origin)
            && header("sec-fetch-site").iter().all(|site| site == "same-origin" || site == "none")
    }
}

/// Parses a query into a selection; the error is the message for the client.
fn selection(query: &str) -> std::result::Result<Selection, String> {
    let mut plain = Plain::named("tiled").map_err(|error| error.to_string())?;
    let (mut extents, mut bug) = ([4; 3], None);
    let mut given = Vec::new();
    for (key, value) in
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    {
        if given.contains(&key) {
            return Err(format!("{}: given twice", quoted(key)));
        }
        given.push(key);
        let unknown = || format!("{}: unknown value {}", quoted(key), quoted(value));
        match key {
            "kernel" => match value {
                "naive" | "tiled" => plain.kind = Plain::named(value).map_err(|error| error.to_string())?.kind,
                _ => return Err(unknown()),
            },
            "tile" => plain.tile = number(key, value, 32)? as u32,
            "mapping" => plain.mapping = value.parse::<Mapping>().map_err(|_| unknown())?,
            "dtype" => plain.ty = Type::operand_named(value).ok_or_else(unknown)?,
            "mistake" => bug = (!value.is_empty()).then_some(value),
            "m" => extents[0] = number(key, value, MAX_EXTENT)?,
            "n" => extents[1] = number(key, value, MAX_EXTENT)?,
            "k" => extents[2] = number(key, value, MAX_EXTENT)?,
            _ => return Err(format!("unknown parameter {}", quoted(key))),
        }
    }
    let plain = match bug {
        Some(bug) => plain.with_bug(bug).map_err(|error| error.to_string())?,
        None => plain,
    };
    Ok(Selection { plain, extents })
}

fn number(key: &str, value: &str, max: usize) -> std::result::Result<usize, String> {
    let number = value.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{key} is {}; the range is 1 to {max}", quoted(value)))
}

/// Quotes client input: printable ASCII, at most 24 characters.
fn quoted(word: &str) -> String {
    let word: String = word.chars().filter(|c| c.is_ascii_graphic()).take(24).collect();
    format!("{word:?}")
}
