//! The Prometheus page: `GET /metrics` over HTTP, from the same counters as `perf dump`.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// A scraper that takes longer to ask than this is let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one connection; `page` makes the text anew for each request.
pub async fn serve<F, P>(stream: TcpStream, page: Arc<P>)
where
    P: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let page = page.clone();
        async move { Ok::<_, Infallible>(respond(&request, &*page).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("metrics connection: {error}");
    }
}

async fn respond<F: Future<Output = String>>(
    request: &Request<Incoming>,
    page: &impl Fn() -> F,
) -> Response<Full<Bytes>> {
    let plain = |status, text: String| {
        Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")
            .body(Full::new(Bytes::from(text)))
            .expect("status and header are constants")
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => plain(StatusCode::OK, page().await),
        (&Method::GET, "/") => plain(StatusCode::OK, "shoal: see /metrics\n".into()),
        (&Method::GET, _) => plain(StatusCode::NOT_FOUND, "not here: see /metrics\n".into()),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into()),
    }
}
