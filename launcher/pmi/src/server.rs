// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server side of PMI-1: requests of one process, and replies to it. Sans-IO.

use crate::{Error, PmiMessage};

/// Properties of a process, as its launcher reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Number of processes of the job.
    pub size: u32,
    /// Index of its program on the command line.
    pub app: u32,
    /// Name of the key-value space: the same for all processes of a job, and different for each job.
    pub job: String,
}

/// A request that the launcher must handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRequest {
    /// The process has initialized. Already answered.
    Init,
    /// Store a pair; answered by [`ClientSession::answer_put`].
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The process is at a fence; answered by [`ClientSession::end_fence`].
    Fence,
    /// Read the value of this key; answered by [`ClientSession::answer_get`].
    Get(String),
    /// End the job, with this exit code.
    Abort {
        /// The code.
        code: i32,
        /// The message of the process.
        message: String,
    },
    /// The process is done. Already answered.
    Finalize,
}

/// Connection to one process, which may send any bytes: an invalid message is answered with an error reply; a line that
/// exceeds the length limit is an error of the connection.
#[derive(Debug)]
pub struct ClientSession {
    facts: ProcessInfo,
    unread: Vec<u8>,
    /// Bytes of `unread` that were parsed.
    done: usize,
    answers: Vec<u8>,
    /// Whether the lines being received belong to a command of several lines, which ends with the line `endcmd`.
    is_long: bool,
}

impl ClientSession {
    /// A new connection.
    #[must_use]
    pub fn new(facts: ProcessInfo) -> Self {
        Self {
            facts,
            unread: Vec::new(),
            done: 0,
            answers: Vec::new(),
            is_long: false,
        }
    }

    /// Appends received bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next request for the launcher; other requests are answered here.
    ///
    /// # Errors
    /// When a line is too long. After that no further request can be parsed.
    pub fn next_request(&mut self) -> Result<Option<ClientRequest>, Error> {
        loop {
            let rest = &self.unread[self.done..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.unread.drain(..std::mem::take(&mut self.done));
                return match self.unread.len() {
                    bytes @ LONGEST_LINE_BYTES.. => Err(Error::Long {
                        bytes,
                        most: LONGEST_LINE_BYTES,
                    }),
                    _ => Ok(None),
                };
            };
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            self.done += end + 1;
            let request = self.receive(&line);
            if request.is_some() {
                return Ok(request);
            }
        }
    }

    /// Bytes to send to the process; the caller removes those that were sent.
    pub fn answers(&mut self) -> &mut Vec<u8> {
        &mut self.answers
    }

    /// Answers a put. `is_kept`: whether the pair was stored; `false` means that there was no room.
    pub fn answer_put(&mut self, is_kept: bool) {
        let result = PmiMessage::new("put_result");
        self.send(&match is_kept {
            true => result.with("rc", 0),
            false => result.with("rc", -1).with("msg", "no_room"),
        });
    }

    /// Ends a fence, which all processes have entered.
    pub fn end_fence(&mut self) {
        self.send(&PmiMessage::new("barrier_out").with("rc", 0));
    }

    /// Answers a get; `None` if the key does not exist.
    pub fn answer_get(&mut self, value: Option<&str>) {
        let result = PmiMessage::new("get_result");
        self.send(&match value {
            Some(value) => result.with("rc", 0).with("value", value),
            None => result.with("rc", 1).with("msg", "key_not_found"),
        });
    }

    fn send(&mut self, message: &PmiMessage) {
        self.answers.extend_from_slice(message.line().as_bytes());
    }

    fn receive(&mut self, line: &str) -> Option<ClientRequest> {
        let line = line.trim_end();
        if self.is_long {
            if line == "endcmd" {
                self.is_long = false;
                // The only command of several lines is spawn.
                self.send(
                    &PmiMessage::new("spawn_result")
                        .with("rc", -1)
                        .with("status", 1),
                );
            }
            return None;
        }
        if line.starts_with("mcmd=") {
            self.is_long = true;
            return None;
        }
        self.handle_message(&PmiMessage::of_line(line))
    }

    fn handle_message(&mut self, message: &PmiMessage) -> Option<ClientRequest> {
        let well = |answer: &str| PmiMessage::new(answer).with("rc", 0);
        match message.command() {
            "" => {}
            "init" if message.number("pmi_version") != Some(1) => {
                let answer = PmiMessage::new("response_to_init").with("rc", -1);
                self.send(&answer.with("pmi_version", 1).with("pmi_subversion", 1));
            }
            "init" => {
                let answer = well("response_to_init").with("pmi_version", 1);
                self.send(&answer.with("pmi_subversion", 1));
                return Some(ClientRequest::Init);
            }
            "get_maxes" => self.send(
                &well("maxes")
                    .with("kvsname_max", LONGEST_NAME)
                    .with("keylen_max", LONGEST_KEY)
                    .with("vallen_max", LONGEST_VALUE),
            ),
            "get_appnum" => self.send(&well("appnum").with("appnum", self.facts.app)),
            "get_my_kvsname" => self.send(&well("my_kvsname").with("kvsname", &self.facts.job)),
            "get_universe_size" => self.send(&well("universe_size").with("size", self.facts.size)),
            "put" => return self.put(message),
            "get" => {
                return Some(ClientRequest::Get(
                    message.get("key").unwrap_or_default().to_owned(),
                ));
            }
            "barrier_in" => return Some(ClientRequest::Fence),
            "abort" => {
                return Some(ClientRequest::Abort {
                    code: message.number("exitcode").unwrap_or(1),
                    message: message.get("message").unwrap_or_default().to_owned(),
                });
            }
            "finalize" => {
                self.send(&well("finalize_ack"));
                return Some(ClientRequest::Finalize);
            }
            // Publishing names and spawning are not supported.
            other => {
                let result = format!("{}_result", other.trim_end_matches("_name"));
                self.send(
                    &PmiMessage::new(&result)
                        .with("rc", -1)
                        .with("msg", "not_supported"),
                );
            }
        }
        None
    }

    fn put(&mut self, message: &PmiMessage) -> Option<ClientRequest> {
        let pair = (message.get("key"), message.get("value"));
        let (Some(key), Some(value)) = pair else {
            self.send(
                &PmiMessage::new("put_result")
                    .with("rc", -1)
                    .with("msg", "no_key_or_value"),
            );
            return None;
        };
        if key.len() > LONGEST_KEY || value.len() > LONGEST_VALUE {
            let result = PmiMessage::new("put_result").with("rc", -1);
            self.send(&result.with("msg", "too_long"));
            return None;
        }
        Some(ClientRequest::Put {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// Limits in bytes that MPICH's launcher reports. Programs linked to MPICH have buffers of these sizes.
const LONGEST_NAME: usize = 256;
const LONGEST_KEY: usize = 64;
const LONGEST_VALUE: usize = 1024;
/// Maximum size of a line in bytes; valid lines are far shorter.
const LONGEST_LINE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn server() -> ClientSession {
        ClientSession::new(ProcessInfo {
            size: 4,
            app: 1,
            job: "rmpi-7".to_owned(),
        })
    }

    /// The requests for the launcher, and the replies to the process.
    fn exchange(server: &mut ClientSession, text: &str) -> (Vec<ClientRequest>, String) {
        server.take(text.as_bytes());
        let requests = std::iter::from_fn(|| server.next_request().unwrap()).collect();
        let answers = std::mem::take(server.answers());
        (requests, String::from_utf8(answers).unwrap())
    }

    #[test]
    fn mpich_client_requests_get_the_expected_replies() {
        let mut server = server();
        let begun = exchange(&mut server, "cmd=init pmi_version=1 pmi_subversion=1\n");
        let answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        assert_eq!(begun, (vec![ClientRequest::Init], answer.to_owned()));
        for (line, answer) in [
            (
                "cmd=init pmi_version=2 pmi_subversion=0\n",
                "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n",
            ),
            (
                "cmd=get_maxes\n",
                "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
            ),
            ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=1\n"),
            (
                "cmd=get_my_kvsname\n",
                "cmd=my_kvsname rc=0 kvsname=rmpi-7\n",
            ),
            ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=4\n"),
            (
                "cmd=lookup_name service=a\n",
                "cmd=lookup_result rc=-1 msg=not_supported\n",
            ),
            (
                "mcmd=spawn\nnprocs=1\nexecname=a\nendcmd\n",
                "cmd=spawn_result rc=-1 status=1\n",
            ),
            (
                "cmd=put kvsname=rmpi-7 key=k\n",
                "cmd=put_result rc=-1 msg=no_key_or_value\n",
            ),
            ("\nodd\n", ""),
        ] {
            assert_eq!(exchange(&mut server, line), (vec![], answer.to_owned()));
        }
    }

    #[test]
    fn requests_to_the_launcher_keep_their_order() {
        let mut server = server();
        let text = "cmd=put kvsname=rmpi-7 key=P0 value=a=b\ncmd=barrier_in\n";
        let (requests, answers) = exchange(&mut server, text);
        let put = ClientRequest::Put {
            key: "P0".to_owned(),
            value: "a=b".to_owned(),
        };
        assert_eq!((requests, &*answers), (vec![put, ClientRequest::Fence], ""));
        server.answer_put(true);
        server.answer_put(false);
        server.end_fence();
        let (requests, answers) = exchange(&mut server, "cmd=get kvsname=rmpi-7 key=P0\n");
        assert_eq!(requests, [ClientRequest::Get("P0".to_owned())]);
        assert_eq!(
            answers,
            "cmd=put_result rc=0\ncmd=put_result rc=-1 msg=no_room\ncmd=barrier_out rc=0\n"
        );
        server.answer_get(Some("a=b"));
        server.answer_get(None);
        let (requests, answers) = exchange(&mut server, "cmd=finalize\n");
        assert_eq!(requests, [ClientRequest::Finalize]);
        assert_eq!(
            answers,
            "cmd=get_result rc=0 value=a=b\ncmd=get_result rc=1 msg=key_not_found\ncmd=finalize_ack rc=0\n"
        );
        let (requests, _) = exchange(&mut server, "cmd=abort exitcode=7\n");
        let (code, message) = (7, String::new());
        assert_eq!(requests, [ClientRequest::Abort { code, message }]);
    }

    #[test]
    fn an_overlong_line_is_an_error() {
        let mut server = server();
        server.take(&vec![b'a'; LONGEST_LINE_BYTES - 1]);
        assert_eq!(server.next_request().unwrap(), None);
        server.take(b"a");
        assert!(server.next_request().is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(parts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "(cmd|mcmd)=(init|put|get|spawn|abort|barrier_in|finalize|endcmd)( (key|value|exitcode)=[^\n]{0,9}){0,3}\n"
                    .prop_map(String::into_bytes),
            ], 0..20)) {
            let mut server = server();
            for part in parts {
                server.take(&part);
                while let Ok(Some(_)) = server.next_request() {}
            }
        }

        #[test]
        fn lines_may_arrive_in_any_pieces(cuts in proptest::collection::vec(1..30_usize, 0..12)) {
            let text = "cmd=init pmi_version=1\ncmd=put key=a value=b\nmcmd=spawn\nx=1\nendcmd\ncmd=get key=a\ncmd=barrier_in\n";
            let whole = exchange(&mut server(), text);
            let mut server = server();
            let (mut requests, mut answers, mut rest) = (Vec::new(), String::new(), text);
            for cut in cuts {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                let (some, message) = exchange(&mut server, part);
                requests.extend(some);
                answers.push_str(&message);
                rest = behind;
            }
            let (some, message) = exchange(&mut server, rest);
            requests.extend(some);
            answers.push_str(&message);
            prop_assert_eq!((requests, answers), whole);
        }
    }
}
