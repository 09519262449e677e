//! The `spokeshave` command. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    spokeshave::main(std::env::args_os())
}
