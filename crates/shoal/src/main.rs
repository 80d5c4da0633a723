//! The shoal binary: one cluster, in one command.

fn main() -> std::process::ExitCode {
    shoal::cli::run()
}
