//! How it was: every grant that is live or remembered, and whether it was valid at an instant.

use crate::answer::{AtRevision, Call, Failure, Page};
use crate::history::{Cursor, Filter, History};
use crate::node::Node;
use leasehold_core::command::EndedHow;
use leasehold_core::outcome::{Grant, GrantRecord};
use leasehold_core::{ClientId, LockTable, Piece, ResourceName, Token};
use std::fmt;
use std::sync::Arc;

/// Which grants.
#[derive(Debug, Clone, Default)]
pub struct GrantsFilter {
    /// Only of this resource.
    pub resource: Option<ResourceName>,
    /// Only of this client.
    pub client: Option<ClientId>,
    /// Only those that were valid at this instant, by the service's wall clocks.
    pub at_ms: Option<u64>,
}

impl GrantsFilter {
    fn takes(&self, grant: &Grant) -> bool {
        self.resource.as_ref().is_none_or(|resource| grant.resource == *resource)
            && self.client.as_ref().is_none_or(|client| grant.owner.client == *client)
            && self.at_ms.is_none_or(|at_ms| grant.granted_at_ms <= at_ms)
    }

    fn takes_ended(&self, record: &GrantRecord) -> bool {
        self.takes(&record.grant) && self.at_ms.is_none_or(|at_ms| at_ms < record.ended_at_ms)
    }

    /// The index that finds them.
    fn index(&self) -> Filter {
        match (&self.resource, &self.client, self.at_ms) {
            (Some(resource), _, _) => Filter::Resource(resource.clone()),
            (None, Some(client), _) => Filter::Client { client: client.clone(), principal: None },
            (None, None, Some(at_ms)) => Filter::EndedAfter(at_ms),
            (None, None, None) => Filter::EndedUntil(u64::MAX),
        }
    }
}

/// A grant, live or ended.
#[derive(Debug, Clone)]
pub struct GrantSeen {
    /// The grant.
    pub grant: Arc<Grant>,
    /// How and when it ended.
    pub ended: Option<(EndedHow, u64)>,
    /// Milliseconds until its lease may end, if it is live.
    pub expires_in_ms: Option<u64>,
}

impl GrantSeen {
    /// Whether it was valid at an instant, by the service's wall clocks: from its grant on, and
    /// not any more when it ended.
    #[must_use]
    pub fn was_valid_at(&self, at_ms: u64) -> bool {
        let ended = self.ended.is_some_and(|(_, ended_at_ms)| ended_at_ms <= at_ms);
        self.grant.granted_at_ms <= at_ms && !ended
    }
}

impl From<Arc<GrantRecord>> for GrantSeen {
    fn from(record: Arc<GrantRecord>) -> Self {
        let ended = Some((record.how, record.ended_at_ms));
        Self { grant: Arc::clone(&record.grant), ended, expires_in_ms: None }
    }
}

/// Why nothing is told of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoGrant {
    /// It was never given out.
    NeverIssued,
    /// It was given out and its grant has ended, so long ago that the record was dropped.
    Forgotten,
}

/// Where a page ended: the live grants come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// After the live grant with this token.
    Live(Token),
    /// After this of what a client has.
    Of(Piece),
    /// After all live ones, and after this ended one.
    Ended(Option<Cursor>),
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        if text == "e" {
            return Some(Self::Ended(None));
        }
        if let Some(cursor) = text.strip_prefix('e') {
            return Cursor::parse(cursor).map(|cursor| Self::Ended(Some(cursor)));
        }
        if let Some(piece) = text.strip_prefix('c') {
            return Piece::parse(piece).map(Self::Of);
        }
        let token = u64::from_str_radix(text.strip_prefix('l')?, 16).ok()?;
        Some(Self::Live(Token(token)))
    }
}

impl Place {
    fn token(self) -> Option<Token> {
        match self {
            Self::Live(token) => Some(token),
            Self::Of(_) | Self::Ended(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(token) => write!(f, "l{:x}", token.0),
            Self::Of(piece) => write!(f, "c{piece}"),
            Self::Ended(None) => f.write_str("e"),
            Self::Ended(Some(cursor)) => write!(f, "e{cursor}"),
        }
    }
}

impl GrantsFilter {
    /// Whether [`Node::grants`] can have ended a page of this list there.
    #[must_use]
    pub fn goes_on_from(&self, text: &str) -> bool {
        match Place::parse(text) {
            Some(Place::Live(_)) => self.resource.is_some() || self.client.is_none(),
            Some(Place::Of(_)) => self.resource.is_none() && self.client.is_some(),
            Some(Place::Ended(None)) => true,
            Some(Place::Ended(Some(cursor))) => {
                cursor.by_time() == (self.resource.is_none() && self.client.is_none())
            }
            None => false,
        }
    }
}

impl Node {
    /// Grants, the live ones first, then those that ended, each newest first. `after` is the
    /// `next` of the page before. A page may be short, or empty, and still have a next one.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn grants(
        &self,
        _call: Call,
        filter: GrantsFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<AtRevision<Page<GrantSeen>>, Failure> {
        self.fresh(false).await?;
        let place = after.and_then(Place::parse);
        let (mut items, mut next, revision) = {
            let table = self.inner.shared.table.read();
            let (live, next) = live(&table, &filter, place, limit);
            (live, next, table.revision())
        };
        if next.is_none() && items.len() == limit {
            next = Some(Place::Ended(None));
        }
        let mut seen: Vec<GrantSeen> = items.drain(..).map(|grant| self.seen(grant)).collect();
        if next.is_none() {
            let before = match place {
                Some(Place::Ended(cursor)) => cursor,
                _ => None,
            };
            let (ended, cursor) = self.ended(filter, before, limit - seen.len()).await?;
            // One that ended between the two looks is in both.
            let ended = ended
                .into_iter()
                .filter(|record| seen.iter().all(|live| live.grant.token != record.grant.token))
                .collect::<Vec<_>>();
            seen.extend(ended.into_iter().map(GrantSeen::from));
            next = cursor.map(|cursor| Place::Ended(Some(cursor)));
        }
        let next = next.map(|place| place.to_string());
        Ok(AtRevision { value: Page { items: seen, next, total: None }, revision })
    }

    async fn ended(
        &self,
        filter: GrantsFilter,
        before: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Arc<GrantRecord>>, Option<Cursor>), Failure> {
        let read = move |history: &History| {
            let wanted = |record: &GrantRecord| filter.takes_ended(record);
            history.page_where(&filter.index(), before, limit, &wanted)
        };
        let page = self.read_history(read).await?;
        Ok((page.records, page.next))
    }

    /// The instant from which on every grant is known that was valid: what ended before it may
    /// have been dropped.
    #[must_use]
    pub fn grants_complete_since_ms(&self) -> u64 {
        self.inner.history.complete_since_ms()
    }

    /// The grant with a token.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn grant(
        &self,
        _call: Call,
        token: Token,
    ) -> Result<AtRevision<Result<GrantSeen, NoGrant>>, Failure> {
        self.fresh(false).await?;
        let (live, revision, issued) = {
            let table = self.inner.shared.table.read();
            (table.grant(token).cloned(), table.revision(), table.last_token())
        };
        let value = match live {
            Some(grant) => Ok(self.seen(grant)),
            None => match self.record(token).await? {
                Some(record) => Ok(record.into()),
                None if token > issued || token == Token(0) => Err(NoGrant::NeverIssued),
                None => Err(NoGrant::Forgotten),
            },
        };
        Ok(AtRevision { value, revision })
    }

    fn seen(&self, grant: Arc<Grant>) -> GrantSeen {
        let expires_in_ms = self.holder(&grant).expires_in_ms;
        GrantSeen { grant, ended: None, expires_in_ms }
    }
}

/// Live grants after `place`, and where they go on.
fn live(
    table: &LockTable,
    filter: &GrantsFilter,
    place: Option<Place>,
    limit: usize,
) -> (Vec<Arc<Grant>>, Option<Place>) {
    let wanted = |grant: &Grant| filter.takes(grant);
    match (place, &filter.resource, &filter.client) {
        (Some(Place::Ended(_)), _, _) => (Vec::new(), None),
        (_, Some(resource), _) => {
            let before = place.and_then(Place::token);
            let slice = table.newest_grants_on(resource, before, limit, wanted);
            (slice.items, slice.next.map(Place::Live))
        }
        (_, None, Some(client)) => {
            let before = match place {
                Some(Place::Of(piece)) => Some(piece),
                _ => None,
            };
            let slice = table.newest_grants_of(client, before, limit, wanted);
            (slice.items, slice.next.map(Place::Of))
        }
        (_, None, None) => {
            let slice = table.newest_grants(place.and_then(Place::token), filter.at_ms, limit);
            (slice.items, slice.next.map(Place::Live))
        }
    }
}
