//! What can be said about one route beyond its row in the table.

use leasehold_wire::Code;
use leasehold_wire::schema::Schemas;
use schemars::JsonSchema;
use serde_json::Value;

/// Groups operations for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Locks,
    Leases,
    History,
    Operators,
    Cluster,
    Service,
    Health,
}

impl Tag {
    pub(super) const ALL: &'static [(Self, &'static str)] = &[
        (Self::Locks, "Take locks, keep them, give them back, and look at them."),
        (Self::Leases, "One heartbeat for many grants."),
        (Self::History, "What happened, and what is happening."),
        (Self::Operators, "For those who look after the service."),
        (Self::Cluster, "The nodes that are the service, and changes to them."),
        (Self::Service, "The service about itself."),
        (Self::Health, "For load balancers, supervisors and monitoring."),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Locks => "Locks",
            Self::Leases => "Leases",
            Self::History => "History",
            Self::Operators => "Operators",
            Self::Cluster => "Cluster",
            Self::Service => "Service",
            Self::Health => "Health",
        }
    }
}

/// Makes a schema, and remembers the ones that it refers to.
pub(super) type Shape = fn(&mut Schemas) -> Value;

/// A parameter of the query, the path or the head.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Where,
    pub(super) description: &'static str,
    pub(super) required: bool,
    pub(super) schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Query,
    Path,
    Header,
}

impl Parameter {
    pub(super) fn new(
        place: Where,
        name: &'static str,
        description: &'static str,
        schema: Value,
    ) -> Self {
        Self { name, place, description, required: place == Where::Path, schema }
    }

    pub(super) fn required(self) -> Self {
        Self { required: true, ..self }
    }
}

/// Whether a good answer names the revision that it reflects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// It does not.
    None,
    /// It does, unless the caller was content with what the node knows.
    UnlessStale,
    /// It does.
    Always,
}

/// One route, described.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// That of the row in the table of routes.
    pub(super) name: &'static str,
    pub(super) tag: Tag,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    /// The parameters that the handler reads from the query.
    pub(super) reads: &'static [&'static str],
    pub(super) parameters: Vec<Parameter>,
    pub(super) request: Option<Shape>,
    pub(super) request_optional: bool,
    pub(super) answer: Option<Shape>,
    pub(super) answer_type: &'static str,
    pub(super) revision: Revision,
    /// Further headers of a good answer: name, whether it is always there, what it says.
    pub(super) headers: Vec<(&'static str, bool, &'static str)>,
    /// What can go wrong beyond what goes wrong everywhere.
    pub(super) problems: Vec<(u16, Code)>,
    /// Shapes that belong to the answer although no schema can refer to them.
    pub(super) beside: Vec<Shape>,
}

impl Entry {
    pub(super) fn new(
        name: &'static str,
        tag: Tag,
        summary: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            tag,
            summary,
            description,
            reads: &[],
            parameters: Vec::new(),
            request: None,
            request_optional: false,
            answer: None,
            answer_type: "application/json",
            revision: Revision::None,
            headers: Vec::new(),
            problems: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// The query: the names that the handler reads, and what is to be said about each.
    pub(super) fn query<const N: usize>(
        mut self,
        reads: &'static [&'static str],
        parameters: [Parameter; N],
    ) -> Self {
        self.reads = reads;
        self.parameters.extend(parameters);
        self
    }

    /// A parameter of the path or the head.
    pub(super) fn with(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    pub(super) fn takes<T: JsonSchema>(self) -> Self {
        Self { request: Some(Schemas::request::<T>), ..self }
    }

    /// Like [`Entry::takes`], but the body may be left out.
    pub(super) fn may_take<T: JsonSchema>(self) -> Self {
        Self { request_optional: true, ..self.takes::<T>() }
    }

    pub(super) fn gives<T: JsonSchema>(self) -> Self {
        Self { answer: Some(Schemas::answer::<T>), ..self }
    }

    /// Something else than JSON, or JSON whose shape is not one type of ours.
    pub(super) fn gives_as(self, answer_type: &'static str, shape: Shape) -> Self {
        Self { answer: Some(shape), answer_type, ..self }
    }

    pub(super) fn revised(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    pub(super) fn header(
        mut self,
        name: &'static str,
        always: bool,
        description: &'static str,
    ) -> Self {
        self.headers.push((name, always, description));
        self
    }

    pub(super) fn fails<const N: usize>(mut self, problems: [(u16, Code); N]) -> Self {
        self.problems.extend(problems);
        self
    }
}
