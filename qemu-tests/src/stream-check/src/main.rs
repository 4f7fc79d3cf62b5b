// SPDX-License-Identifier: GPL-2.0

//! stream-check serve|connect ADDRESS:PORT: messages of the crate rdma-io to a server and back,
//! each compared with what was sent.
//!
//! Of the transports of the crate this is the one of Sends: those of rings refuse iWARP devices.

use rdma_io::{
    async_cm::AsyncCmListener,
    async_stream::AsyncRdmaStream,
    send_recv_transport::SendRecvConfig,
    transport::TransportBuilder,
};
use std::{env, error::Error, net::SocketAddr};

const MESSAGES: u64 = 1000;
/// Length of the longest message, in bytes.
const LONGEST: usize = 16 * 1024;

type Outcome = Result<(), Box<dyn Error>>;

async fn serve(addr: SocketAddr) -> Outcome {
    let listener = AsyncCmListener::bind(&addr)?;
    let mut stream = AsyncRdmaStream::new(SendRecvConfig::stream().accept(&listener).await?);
    let mut buf = vec![0; LONGEST];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n]).await?,
        }
    }
}

async fn connect(addr: SocketAddr) -> Outcome {
    let mut stream = AsyncRdmaStream::new(SendRecvConfig::stream().connect(&addr).await?);
    let mut random = 0x5157u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut total = 0;
    for message in 0..MESSAGES {
        let len = 1 + next() as usize % LONGEST;
        let sent: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        let mut got = vec![0; len];
        stream.write_all(&sent).await?;
        let mut at = 0;
        while at < len {
            match stream.read(&mut got[at..]).await? {
                0 => return Err(format!("the stream ended in message {message}").into()),
                n => at += n,
            }
        }
        if got != sent {
            return Err(format!("message {message} of {len} bytes came back changed").into());
        }
        total += len;
    }
    stream.shutdown().await?;
    println!("{MESSAGES} messages, {total} bytes came back as they were");
    Ok(())
}

async fn run(role: &str, addr: SocketAddr) -> Outcome {
    match role {
        "serve" => serve(addr).await,
        "connect" => connect(addr).await,
        _ => Err(format!("no role {role}").into()),
    }
}

fn main() -> Outcome {
    let args: Vec<String> = env::args().skip(1).collect();
    let [role, addr] = args.as_slice() else {
        return Err("usage: stream-check serve|connect ADDRESS:PORT".into());
    };
    let addr = addr.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(role, addr))
}
