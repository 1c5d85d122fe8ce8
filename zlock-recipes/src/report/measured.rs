//! A backend that traces each operation in a span and reports it to the observer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use tracing::{Instrument, Level, Span};
use zlock_core::observer::{Observer, RequestOutcome};
use zlock_core::{
    Background, Close, CoordinationBackend, Created, Deletion, Error, ErrorKind, Existence, Groups,
    GuardNode, HandOver, Head, Joined, Label, ListedMember, LockPath, MemberContents, Node, NodeData, NodeId,
    Queue, Replaced, Result, SessionEvents, Target, Value, Values, Version, Watch, WriteOutcome,
};

use crate::report::{Observing, Reports, since};

/// Wraps the user's backend.
pub(crate) struct Measured {
    inner: Arc<dyn CoordinationBackend>,
    observing: Observing,
}

impl Measured {
    pub(crate) fn new(inner: Arc<dyn CoordinationBackend>, observing: Observing) -> Self {
        Measured { inner, observing }
    }

    fn backend(&self) -> &dyn CoordinationBackend {
        &*self.inner
    }

    /// Returns the values of the inner backend.
    fn stored(&self) -> &dyn Values {
        self.inner.values().unwrap_or(&NoValues)
    }

    /// Returns the groups of the inner backend.
    fn joinable(&self) -> &dyn Groups {
        self.inner.groups().unwrap_or(&NoValues)
    }

    fn measure<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        path: &LockPath,
        request: Request<'a, T>,
    ) -> Request<'a, T> {
        let span = tracing::trace_span!("request", operation, %path);
        match self.observing.get() {
            None if span.is_disabled() => request,
            None => Box::pin(request.instrument(span)),
            Some(reports) => Box::pin(reported(reports, operation, request, span)),
        }
    }
}

/// Returns `true` if there is an observer or a subscriber for the spans.
pub(crate) fn is_observed(observing: &Observing) -> bool {
    observing.get().is_some() || tracing::level_enabled!(Level::TRACE)
}

type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

async fn reported<T>(
    reports: &Reports,
    operation: &'static str,
    request: Request<'_, T>,
    span: Span,
) -> Result<T> {
    let outcome = RequestOutcome::Cancelled;
    let mut timed = Timed { reports, operation, began: Instant::now(), outcome };
    let result = request.instrument(span).await;
    timed.outcome = match &result {
        Ok(_) => RequestOutcome::Answered,
        Err(error) => RequestOutcome::Failed(error.kind()),
    };
    result
}

/// Reports the operation when it is dropped, even if the operation's future was dropped before its end.
struct Timed<'a> {
    reports: &'a Reports,
    operation: &'static str,
    began: Instant,
    outcome: RequestOutcome,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let Timed { reports, operation, began, outcome } = *self;
        reports.request_ended(operation, since(began), outcome);
    }
}

/// Methods that measure those of what the method `$inner` returns.
macro_rules! measured {
    ($inner:ident; $($name:ident<$($life:lifetime),*>($parent:ident $(, $arg:ident: $type:ty)*) -> $output:ty, $operation:literal;)*) => {$(
        fn $name<'me, 'path, $($life,)* 'future>(
            &'me self,
            $parent: &'path LockPath,
            $($arg: $type,)*
        ) -> Request<'future, $output>
        where
            'me: 'future,
            'path: 'future,
            $($life: 'future,)*
            Self: 'future,
        {
            self.measure($operation, $parent, self.$inner().$name($parent, $($arg),*))
        }
    )*};
}

#[deny(clippy::missing_trait_methods)]
impl CoordinationBackend for Measured {
    measured! {
        backend;
        create_ephemeral_sequential<'b, 'c>(parent, label: Label, node_id: &'b NodeId, data: &'c [u8]) -> Created, "create";
        create_unlisted<'b, 'c>(parent, label: Label, node_id: &'b NodeId, data: &'c [u8]) -> Created, "create";
        children<>(parent) -> Queue, "children";
        children_up_to<'b>(parent, node: &'b Node) -> Queue, "children_up_to";
        children_with_watch<>(parent) -> (Queue, Watch), "children_with_watch";
        exists_with_watch<'b>(parent, seen: &'b Node) -> Existence, "exists_with_watch";
        relabel<'b>(parent, node: &'b Node, label: Label) -> Node, "relabel";
        delete<'b>(parent, target: &'b Target) -> Deletion, "delete";
        hand_over<'b, 'c>(parent, node: &'b Node, next: &'c [Node]) -> HandOver, "hand_over";
        data<'b>(parent, node: &'b Node) -> Option<NodeData>, "data";
        data_with_watch<'b>(parent, node: &'b Node) -> Option<(Vec<u8>, Watch)>, "data_with_watch";
        set_data<'b, 'c>(parent, node: &'b Node, data: &'c [u8]) -> (), "set_data";
        replace_data<'b, 'c>(parent, node: &'b Node, writes: u64, data: &'c [u8]) -> Replaced, "replace_data";
        head_with_watch<>(parent) -> (Option<Head>, Watch), "head_with_watch";
    }

    fn values(&self) -> Option<&dyn Values> {
        self.inner.values().map(|_| self as &dyn Values)
    }

    fn groups(&self) -> Option<&dyn Groups> {
        self.inner.groups().map(|_| self as &dyn Groups)
    }

    fn session_events(&self) -> SessionEvents {
        self.inner.session_events()
    }

    fn background(&self) -> Background {
        self.inner.background()
    }

    fn close<'me, 'future>(&'me self) -> Request<'future, Close>
    where
        'me: 'future,
        Self: 'future,
    {
        self.inner.close()
    }
}

/// Stands for the values and the groups of a backend that has none, which nothing asks for.
#[derive(Debug)]
struct NoValues;

#[async_trait]
impl Values for NoValues {
    async fn value(&self, path: &LockPath) -> Result<Option<Value>> {
        Err(no_values(path))
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        Err(no_values(path))
    }

    async fn write_value(
        &self,
        path: &LockPath,
        _: Option<Version>,
        _: &[u8],
        _: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        Err(no_values(path))
    }
}

#[async_trait]
impl Groups for NoValues {
    async fn join(&self, member: &LockPath, _: &[u8], _: bool) -> Result<Joined> {
        Err(no_values(member))
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        Err(no_values(member))
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        Err(no_values(group))
    }
}

fn no_values(path: &LockPath) -> Error {
    Error::new(ErrorKind::InvalidArgument, "value").with_path(path)
}

#[deny(clippy::missing_trait_methods)]
impl Values for Measured {
    measured! {
        stored;
        value<>(path) -> Option<Value>, "value";
        seen_value<>(path) -> Option<Value>, "seen_value";
        value_with_watch<>(path) -> (Option<Value>, Watch), "value_with_watch";
        write_value<'b, 'c>(path, expected: Option<Version>, data: &'b [u8], guard: Option<&'c GuardNode>)
            -> WriteOutcome, "write_value";
    }
}

#[deny(clippy::missing_trait_methods)]
impl Groups for Measured {
    measured! {
        joinable;
        join<'b>(member, data: &'b [u8], replaces: bool) -> Joined, "join";
        leave<>(member) -> (), "leave";
        members_with_watch<>(group) -> (Vec<ListedMember>, Watch), "members_with_watch";
        member_with_watch<>(member) -> Option<(MemberContents, Watch)>, "member_with_watch";
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
