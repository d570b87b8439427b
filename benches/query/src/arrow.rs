//! DataFusion as it comes: over Arrow batches in memory, and over the Parquet files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::runtime::Runtime;

use crate::data::Data;
use crate::questions::QUESTIONS;
use crate::report::sum;
use crate::{Answered, Engine, Outcome};

pub(crate) struct DataFusion {
    name: &'static str,
    runtime: Runtime,
    context: SessionContext,
    source: Source,
}

enum Source {
    /// The solver's batches, a list a partition.
    Arrow(Vec<Vec<RecordBatch>>),
    /// Where the files are.
    Parquet(PathBuf),
}

fn batches(file: &Path) -> Outcome<Vec<RecordBatch>> {
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?.with_batch_size(8192).build()?;
    Ok(reader.collect::<Result<_, _>>()?)
}

impl DataFusion {
    fn new(name: &'static str, source: Source) -> Outcome<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(cores));
        Ok(DataFusion { name, runtime, context, source })
    }

    pub(crate) fn on_arrow(data: &Data) -> Outcome<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let all = batches(&data.files().join("solver-0.parquet"))?;
        let share = all.len().div_ceil(cores).max(1);
        let partitions: Vec<Vec<RecordBatch>> = all.chunks(share).map(<[RecordBatch]>::to_vec).collect();
        let engine = Self::new("DataFusion on Arrow", Source::Arrow(partitions))?;
        let checker = batches(&data.files().join("checker-0.parquet"))?;
        let table = MemTable::try_new(checker[0].schema(), vec![checker])?;
        engine.context.register_table("checker", Arc::new(table))?;
        Ok(engine)
    }

    pub(crate) fn on_parquet(data: &Data) -> Outcome<Self> {
        let engine = Self::new("DataFusion on Parquet", Source::Parquet(data.files().to_owned()))?;
        engine.register_files("checker", data.files())?;
        Ok(engine)
    }

    fn register_files(&self, table: &str, files: &Path) -> Outcome<()> {
        self.context.deregister_table(table)?;
        let pattern = format!("{}/{table}-*.parquet", files.display());
        let registered = self.context.register_parquet(table, &pattern, ParquetReadOptions::default());
        Ok(self.runtime.block_on(registered)?)
    }
}

impl Engine for DataFusion {
    fn name(&self) -> &'static str {
        self.name
    }

    fn add(&mut self, file: &Path) -> Outcome<()> {
        let files = match &mut self.source {
            Source::Parquet(files) => files.clone(),
            Source::Arrow(partitions) => {
                if let Some(last) = partitions.last_mut() {
                    last.extend(batches(file)?);
                }
                let table = MemTable::try_new(partitions[0][0].schema(), partitions.clone())?;
                self.context.deregister_table("solver")?;
                self.context.register_table("solver", Arc::new(table))?;
                return Ok(());
            }
        };
        self.register_files("solver", &files)
    }

    fn ask(&mut self, question: usize) -> Outcome<Answered> {
        let start = Instant::now();
        let answer = async { self.context.sql(QUESTIONS[question].sql).await?.collect().await };
        let answer = self.runtime.block_on(answer)?;
        let time = start.elapsed();
        let rows = answer.iter().map(RecordBatch::num_rows).sum();
        Ok(Answered { time, rows, sum: sum(&answer)? })
    }
}
