//! Where answers go, and in which form.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Stdout, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use forebay::query::{Format, Renderer, RowStream};
use futures_util::StreamExt;

/// Standard output, or a file, in a format.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    file: Option<PathBuf>,
}

/// How much was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The rows.
    pub(super) rows: usize,
    /// Whether there are more.
    pub(super) cut: bool,
}

impl Output {
    /// The format is what was asked for, or what the file's name says.
    pub(super) fn new(format: Option<Format>, file: Option<PathBuf>) -> Result<Self> {
        let ending = |file: &PathBuf| file.extension()?.to_str()?.parse().ok();
        let format = format.or_else(|| file.as_ref().and_then(ending)).unwrap_or_default();
        let mut output = Output { format, file };
        output.set_format(format)?;
        Ok(output)
    }

    /// Goes on in another format.
    pub(super) fn set_format(&mut self, format: Format) -> Result<()> {
        ensure!(
            !format.is_binary() || self.file.is_some() || !stdout().is_terminal(),
            "{format} is bytes, and a terminal shows text; give --output FILE, or send it into a pipe"
        );
        self.format = format;
        Ok(())
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether there is a place for one answer: a file is that of the latest, and a second one behind the first would make neither of
    /// two documents readable.
    pub(super) fn is_one_document(&self) -> bool {
        self.format.is_binary() || self.file.is_some()
    }

    /// Writes an answer, batch by batch as it comes. A file gets its name when it is whole.
    pub(super) async fn write(&self, rows: RowStream) -> Result<Written> {
        let Some(path) = &self.file else {
            let mut stdout: BufWriter<Stdout> = BufWriter::new(stdout());
            // None where nobody looks at a terminal; 0 where the terminal does not know.
            let width = comfy_table::Table::new().width().map(usize::from).filter(|width| *width > 0);
            let written = render(rows, self.format, &mut stdout, width).await?;
            stdout.flush()?;
            return Ok(written);
        };
        let unfinished = unfinished(path);
        let cannot = || format!("cannot write {}", path.display());
        let mut file = BufWriter::new(File::create(&unfinished).with_context(cannot)?);
        let written = render(rows, self.format, &mut file, None).await;
        let named = written.and_then(|written| {
            file.flush().and_then(|()| std::fs::rename(&unfinished, path)).with_context(cannot)?;
            Ok(written)
        });
        if named.is_err() {
            let _leftover = std::fs::remove_file(&unfinished); // the failure is told; what is left of the file is no answer
        }
        named
    }
}

/// The name of a file until it is whole.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    path.with_file_name(name)
}

async fn render(
    mut rows: RowStream,
    format: Format,
    writer: &mut (dyn Write + Send),
    width: Option<usize>,
) -> Result<Written> {
    let schema = rows.schema().clone();
    // A statement that fails at once leaves no half of a document behind.
    let mut next = rows.next().await.transpose()?;
    let mut renderer = Renderer::new(format, &schema, writer, width)?;
    let mut written = 0;
    while let Some(batch) = next {
        renderer.write(&batch)?;
        written += batch.num_rows();
        next = rows.next().await.transpose()?;
    }
    let cut = rows.is_cut();
    renderer.finish(cut)?;
    Ok(Written { rows: written, cut })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

    use super::*;

    #[test]
    fn the_format_is_what_was_asked_for_or_what_the_name_says() {
        let format =
            |format, file: Option<&str>| Output::new(format, file.map(PathBuf::from)).unwrap().format();
        assert_eq!(format(None, None), Format::Table);
        assert_eq!(format(None, Some("a.parquet")), Format::Parquet);
        assert_eq!(format(None, Some("a.b/c.json")), Format::Json);
        assert_eq!(format(None, Some("a.txt")), Format::Table);
        assert_eq!(format(Some(Format::Csv), Some("a.parquet")), Format::Csv);
    }
}
