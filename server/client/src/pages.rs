//! Lists, page by page.

use crate::answer::Answer;
use crate::client::Client;
use crate::error::Error;
use crate::wire::Page;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// A list that is read as far as you want it.
pub struct Pages<T> {
    client: Client,
    path: &'static str,
    query: Vec<(&'static str, String)>,
    cursor: Cursor,
    items: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone)]
enum Cursor {
    Start,
    At(String),
    End,
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("path", &self.path)
            .field("query", &self.query)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn new(
        client: &Client,
        path: &'static str,
        query: Vec<(&'static str, String)>,
    ) -> Self {
        Self { client: client.clone(), path, query, cursor: Cursor::Start, items: PhantomData }
    }

    /// Goes on where an earlier reader of the same list stopped.
    #[must_use]
    pub fn from_cursor(mut self, cursor: impl Into<String>) -> Self {
        self.cursor = Cursor::At(cursor.into());
        self
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// As of any read; the same page is asked for again by the next call.
    pub async fn next_page(&mut self) -> Result<Option<Answer<Page<'static, T>>>, Error> {
        let cursor = match &self.cursor {
            Cursor::Start => None,
            Cursor::At(cursor) => Some(("cursor", cursor.as_str())),
            Cursor::End => return Ok(None),
        };
        let query = self.query.iter().map(|(name, value)| (*name, value.as_str())).chain(cursor);
        let page: Answer<Page<'static, T>> =
            self.client.get(self.path, &query.collect::<Vec<_>>()).await?;
        self.cursor = match &page.next_cursor {
            Some(cursor) => Cursor::At(cursor.clone().into_owned()),
            None => Cursor::End,
        };
        Ok(Some(page))
    }

    /// All items, page after page as they are wanted.
    pub fn items(self) -> impl Stream<Item = Result<T, Error>> {
        stream::try_unfold(self, |mut pages| async move {
            let page = pages.next_page().await?;
            Ok::<_, Error>(page.map(|page| (page.value.items, pages)))
        })
        .map_ok(|items| stream::iter(items).map(Ok))
        .try_flatten()
    }

    /// Every item at once. For lists that are known to be short.
    ///
    /// # Errors
    /// As of any read.
    pub async fn all(self) -> Result<Vec<T>, Error> {
        self.items().try_collect().await
    }
}
