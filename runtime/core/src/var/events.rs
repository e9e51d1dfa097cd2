// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only table of MPI_T event types: when an event happens, and its elements.
//!
//! Events are recorded where they happen, in the engine or around it, as a few words ([`crate::Messages::note`]). This
//! table defines how the elements of an event follow from these words. If no tool has a callback for an event,
//! recording costs a load and a branch.

use queue_layout::{COLLECTIVES, EventMask, EventType};

use super::{Category, Verbosity, pvars};

/// One row of the table of event types.
#[derive(Clone, Copy, Debug)]
pub struct EventDescription {
    /// The event type's identifier in the program.
    pub event: EventType,
    /// Name of the event type.
    pub name: &'static str,
    /// Category of the event type.
    pub category: Category,
    /// Verbosity level of the event type.
    pub verbosity: Verbosity,
    /// Elements of the event.
    pub elements: &'static [Element],
    /// Description of the event type.
    pub text: &'static str,
}

/// One element of an event.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// Name of the element.
    pub name: &'static str,
    /// Type of the element.
    pub kind: ElementType,
    /// How the element follows from the words of the record.
    pub from: ElementOrigin,
    /// The names of the element's values, if they are an enumeration; else empty.
    pub words: &'static [&'static str],
}

/// The type of an element of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// `int`.
    Int,
    /// `unsigned long long`.
    Long,
}

impl ElementType {
    /// Size in bytes, which is also the alignment.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int => 4,
            Self::Long => 8,
        }
    }
}

/// How an element follows from the words of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementOrigin {
    /// The word with this index, unchanged.
    Word(usize),
    /// The handle of the communicator whose context id is in the word with this index.
    Communicator(usize),
    /// 1 if the context id in the word with this index is that of internal messages of the library, else 0.
    Internal(usize),
}

impl EventDescription {
    /// The displacement of each element in a copy of the event, as a C compiler would place the elements.
    pub fn displacements(&self) -> impl Iterator<Item = usize> {
        let mut end = 0_usize;
        self.elements.iter().map(move |element| {
            let at = end.next_multiple_of(element.kind.bytes());
            end = at + element.kind.bytes();
            at
        })
    }

    /// The names of the values of the event's enumeration element; empty: it has no such element.
    #[must_use]
    pub fn words(&self) -> &'static [&'static str] {
        let mut all = self.elements.iter().map(|element| element.words);
        all.find(|words| !words.is_empty()).unwrap_or_default()
    }

    /// The description of the event type, with its elements.
    #[must_use]
    pub fn describe(&self) -> String {
        let names: Vec<&str> = self.elements.iter().map(|element| element.name).collect();
        format!("{} Elements: {}.", self.text, names.join(", "))
    }
}

/// The event types for which tools have callbacks.
static SUBSCRIBED: EventMask = EventMask::none();

/// The event types for which tools have callbacks.
#[inline(always)]
#[must_use]
pub fn wanted() -> &'static EventMask {
    &SUBSCRIBED
}

/// Sets which event types are recorded. `bits`: bit `i` is that of the event type with index `i`.
pub fn want(bits: u32) {
    pvars::engine_counters().subscribed.set(bits);
    SUBSCRIBED.set(bits);
}

const fn element(name: &'static str, kind: ElementType, from: ElementOrigin) -> Element {
    Element {
        name,
        kind,
        from,
        words: &[],
    }
}

const COMMUNICATOR: Element = element(
    "communicator",
    ElementType::Long,
    ElementOrigin::Communicator(0),
);
const HANDLE: Element = element("communicator", ElementType::Long, ElementOrigin::Word(0));
const INTERNAL: Element = element("internal", ElementType::Int, ElementOrigin::Internal(0));
const TAG: Element = element("tag", ElementType::Int, ElementOrigin::Word(2));
const BYTES: Element = element("bytes", ElementType::Long, ElementOrigin::Word(3));
const SOURCE: Element = element("source", ElementType::Int, ElementOrigin::Word(1));
const DESTINATION: Element = element("destination", ElementType::Int, ElementOrigin::Word(1));
const PEER: Element = element("peer", ElementType::Int, ElementOrigin::Word(0));

const fn worded(mut element: Element, words: &'static [&'static str]) -> Element {
    element.words = words;
    element
}

const ARRIVED: &[Element] = &[COMMUNICATOR, INTERNAL, SOURCE, TAG, BYTES];
const SENT: &[Element] = &[COMMUNICATOR, INTERNAL, DESTINATION, TAG, BYTES];
const COMPLETE: &[Element] = &[
    worded(
        element("operation", ElementType::Int, ElementOrigin::Word(4)),
        &["send", "receive"],
    ),
    COMMUNICATOR,
    INTERNAL,
    element("peer", ElementType::Int, ElementOrigin::Word(1)),
    TAG,
    BYTES,
];
const KEPT: &[Element] = &[
    PEER,
    element("kept_bytes", ElementType::Long, ElementOrigin::Word(1)),
];
const CALL: &[Element] = &[
    worded(
        element("collective", ElementType::Int, ElementOrigin::Word(1)),
        &COLLECTIVES,
    ),
    COMMUNICATOR,
];
const LARGE: &[Element] = &[
    PEER,
    element("bytes", ElementType::Long, ElementOrigin::Word(1)),
];

/// `rail`: number of the rail among those of the process. `port`: number of the port on its device. `serving`: number
/// of rails in service.
const PORT: &[Element] = &[
    element("rail", ElementType::Int, ElementOrigin::Word(0)),
    element("port", ElementType::Int, ElementOrigin::Word(1)),
    element("serving", ElementType::Int, ElementOrigin::Word(2)),
];

const fn row(
    event: EventType,
    name: &'static str,
    (category, verbosity): (Category, Verbosity),
    elements: &'static [Element],
    text: &'static str,
) -> EventDescription {
    EventDescription {
        event,
        name,
        category,
        verbosity,
        elements,
        text,
    }
}

const MESSAGES: (Category, Verbosity) = (Category::PointToPoint, Verbosity::UserBasic);
const PROTOCOL: (Category, Verbosity) = (Category::PointToPoint, Verbosity::TunerBasic);
const CREDIT: (Category, Verbosity) = (Category::Memory, Verbosity::TunerBasic);
const PROCESS: (Category, Verbosity) = (Category::Process, Verbosity::UserBasic);
const CALLS: (Category, Verbosity) = (Category::Collectives, Verbosity::UserBasic);
const NETWORK: (Category, Verbosity) = (Category::Network, Verbosity::TunerBasic);
const WAITING: (Category, Verbosity) = (Category::Waiting, Verbosity::TunerBasic);

/// The table. An event type keeps its index, so new ones are added at the end.
pub const EVENTS: &[EventDescription] = &[
    row(
        EventType::UnexpectedMessage,
        "unexpected_message",
        MESSAGES,
        ARRIVED,
        "A message arrived, or was announced, before a receive that matches it.",
    ),
    row(
        EventType::UnexpectedMatched,
        "unexpected_message_matched",
        MESSAGES,
        ARRIVED,
        "A receive or a matched probe matched a message that had arrived before it.",
    ),
    row(
        EventType::RendezvousSendBegin,
        "rendezvous_send_begin",
        PROTOCOL,
        SENT,
        "A message was announced to its receiver, because it is large or synchronous, or because the receiver has \
         asked for it.",
    ),
    row(
        EventType::RendezvousSendEnd,
        "rendezvous_send_end",
        PROTOCOL,
        SENT,
        "The data of an announced message were read by the receiver, or were sent.",
    ),
    row(
        EventType::RendezvousReceiveBegin,
        "rendezvous_receive_begin",
        PROTOCOL,
        ARRIVED,
        "A receive matched an announced message; the transfer of its data begins.",
    ),
    row(
        EventType::RendezvousReceiveEnd,
        "rendezvous_receive_end",
        PROTOCOL,
        ARRIVED,
        "The data of an announced message have arrived in the receive buffer.",
    ),
    row(
        EventType::RequestComplete,
        "request_complete",
        MESSAGES,
        COMPLETE,
        "A send or receive that needed a request has completed, also within blocking calls and collectives. Small sends that \
         complete when they start need no request.",
    ),
    row(
        EventType::SenderThrottled,
        "sender_throttled",
        CREDIT,
        KEPT,
        "A sender was asked to announce its messages, because too many messages, or too many bytes, are unexpected \
         here.",
    ),
    row(
        EventType::SenderReleased,
        "sender_released",
        CREDIT,
        KEPT,
        "A sender that was asked to announce its messages may send them without announcement again.",
    ),
    row(
        EventType::CreditStallBegin,
        "credit_stall_begin",
        CREDIT,
        &[PEER],
        "A receiver that has too many unexpected messages asked this process to announce its messages, which then \
         wait for their receives.",
    ),
    row(
        EventType::CreditStallEnd,
        "credit_stall_end",
        CREDIT,
        &[PEER],
        "A receiver that had asked this process to announce its messages accepts them without announcement again.",
    ),
    row(
        EventType::CommunicatorCreated,
        "communicator_created",
        PROCESS,
        &[
            HANDLE,
            element("size", ElementType::Int, ElementOrigin::Word(1)),
            element("rank", ElementType::Int, ElementOrigin::Word(2)),
        ],
        "A communicator was created in the process; for MPI_COMM_WORLD and MPI_COMM_SELF, when MPI is initialized.",
    ),
    row(
        EventType::CommunicatorFreed,
        "communicator_freed",
        PROCESS,
        &[HANDLE],
        "A communicator was freed; its handle is invalid from now on.",
    ),
    row(
        EventType::CollectiveBegin,
        "collective_begin",
        CALLS,
        CALL,
        "A collective begins: a blocking or nonblocking call, or the start of a persistent one.",
    ),
    row(
        EventType::CollectiveEnd,
        "collective_end",
        CALLS,
        CALL,
        "A collective has completed its part in this process.",
    ),
    row(
        EventType::SingleCopyRefused,
        "single_copy_refused",
        NETWORK,
        LARGE,
        "The system refused to read the data of a large message from the sender's memory: they are sent in frames.",
    ),
    row(
        EventType::MemoryNotRegistered,
        "memory_not_registered",
        NETWORK,
        LARGE,
        "The memory of a large message could not be made accessible to its receiver: its data are sent in frames.",
    ),
    row(
        EventType::PeerLost,
        "peer_lost",
        NETWORK,
        &[PEER],
        "A process does not respond over the network any more, and counts as lost.",
    ),
    row(
        EventType::SleepBegin,
        "sleep_begin",
        WAITING,
        &[element(
            "most_ns",
            ElementType::Long,
            ElementOrigin::Word(0),
        )],
        "The process has waited so long that it sleeps, for at most this many nanoseconds.",
    ),
    row(
        EventType::SleepEnd,
        "sleep_end",
        WAITING,
        &[element(
            "most_ns",
            ElementType::Long,
            ElementOrigin::Word(0),
        )],
        "The process has woken up.",
    ),
    row(
        EventType::ErrorRaised,
        "error_raised",
        PROCESS,
        &[element("class", ElementType::Int, ElementOrigin::Word(0))],
        "A call of MPI failed with this error class, and its error handler returned.",
    ),
    row(
        EventType::PortDown,
        "port_down",
        NETWORK,
        PORT,
        "A network port that this process uses has gone down, or its device is lost. Other ports, if there are any, take over \
         its traffic.",
    ),
    row(
        EventType::PortUp,
        "port_up",
        NETWORK,
        PORT,
        "A port that had been down is up again.",
    ),
];

const _: () = assert!(EVENTS.len() == EventType::COUNT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s15_3_8_event_rows_are_ordered_with_unique_names_and_elements() {
        for (at, row) in EVENTS.iter().enumerate() {
            assert_eq!(row.event as usize, at, "{}", row.name);
            let same = |other: &EventDescription| other.name == row.name;
            assert!(!EVENTS[..at].iter().any(same), "{}", row.name);
            assert!(row.text.ends_with('.') && row.category.place().is_some());
            assert!(!row.elements.is_empty());
            for element in row.elements {
                let (ElementOrigin::Word(word)
                | ElementOrigin::Communicator(word)
                | ElementOrigin::Internal(word)) = element.from;
                assert!(word < engine::WORDS, "{}: {}", row.name, element.name);
                // Values of an enumeration are of type `int` (section 15.3.5).
                assert!(element.words.is_empty() || element.kind == ElementType::Int);
            }
            let worded = row.elements.iter().filter(|it| !it.words.is_empty());
            assert!(
                worded.count() <= 1,
                "{}: one enumeration an event",
                row.name
            );
        }
    }

    #[test]
    fn event_elements_have_the_offsets_of_a_c_struct() {
        let places = |event: EventType| {
            let row = &EVENTS[event as usize];
            row.displacements().collect::<Vec<_>>()
        };
        assert_eq!(places(EventType::UnexpectedMessage), [0, 8, 12, 16, 24]);
        assert_eq!(places(EventType::RequestComplete), [0, 8, 16, 20, 24, 32]);
        assert_eq!(places(EventType::CollectiveBegin), [0, 8]);
    }

    #[test]
    fn event_descriptions_list_their_elements() {
        let description = EVENTS[EventType::PeerLost as usize].describe();
        assert!(description.ends_with(" Elements: peer."), "{description}");
    }
}
