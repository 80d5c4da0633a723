//! `shoal lab agent`: the part of the lab that runs on a client host.

use anyhow::Context;
use lab::cluster::Login;
use std::process::ExitCode;

/// Make load for a lab on another host, which starts this over ssh; or be the other end of a network probe
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab agent                 told by `shoal lab run` on its input (clients: { hosts: [...] } in the file)
  shoal lab agent --serve 7373    the other end of tcp-ping and tcp-stream (to: THIS-HOST), until Ctrl-C")]
pub struct Args {
    /// Serve network probes on this port, and nothing else
    #[arg(long, value_name = "PORT")]
    serve: Option<u16>,
    /// The address to serve on
    #[arg(long, default_value = "0.0.0.0", requires = "serve")]
    addr: std::net::IpAddr,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(port) = args.serve {
        let server = lab::tool::network::Server::start((args.addr, port))?;
        println!("serving network probes on {}", server.address());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(tokio::signal::ctrl_c()).context("waiting for Ctrl-C")?;
        return Ok(ExitCode::SUCCESS);
    }
    lab::run::agent::serve(&Login::default(), std::io::stdin(), &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
