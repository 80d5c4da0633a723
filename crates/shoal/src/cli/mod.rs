//! The command line: what can be asked of shoal, and where each question is answered.

mod bench;
mod dencode;
mod down;
mod init;
mod join;
mod lab;
mod leave;
mod migrate;
mod mon;
mod mon_rebuild;
mod osd;
mod restart;
mod sim;
mod status;
mod store;
mod store_object;
mod store_pg;
mod term;
mod token;
mod top;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A storage cluster that Ceph's own clients use as if it were Ceph.
#[derive(Debug, Parser)]
#[command(
    name = "shoal",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  shoal up --dir .shoal --osds 3        a cluster on this machine, in the background
  ceph -c .shoal/ceph.conf -s           ask it with Ceph's own tool
  shoal down --dir .shoal               stop it; `shoal up` starts it again as it was
  shoal init --addr 10.0.0.1 --device /dev/nvme0n1
                                        a cluster of several hosts; it prints the line for the others"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Lab(lab::Args),
    Up(up::Args),
    Down(down::Args),
    Init(init::Args),
    Join(join::Args),
    Leave(leave::Args),
    Token(token::Args),
    Restart(restart::Args),
    Migrate(migrate::Args),
    Status(status::Args),
    Top(top::Args),
    Mon(mon::Args),
    Osd(osd::Args),
    Store(store::Args),
    Dencode(dencode::Args),
    Sim(sim::Args),
}

pub fn run() -> ExitCode {
    conf::private::restrict_process();
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Leave(args) => leave::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Mon(args) => mon::run(&args),
        Command::Osd(args) => osd::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Dencode(args) => dencode::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{} {error:#}", term::red(&std::io::stderr(), "shoal:"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
