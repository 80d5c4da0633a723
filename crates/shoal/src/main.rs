//! The shoal binary: one cluster, in one command.

#[global_allocator]
static ALLOCATOR: runtime::memory::Allocator = runtime::memory::Allocator;

fn main() -> std::process::ExitCode {
    shoal::cli::run()
}
