//! `detokenise(tokens [, tokenizer])`: a list of token ids as the text that they spell.
//!
//! Tokenizers are those that the session was given, by name: a query names no file, so whoever may ask a store cannot
//! read the disk. Without a name the session's only tokenizer is meant. Special tokens are shown. NULL where the list or the name is.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array};
use arrow_schema::{DataType, Field};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use tokenizers::Tokenizer;

use super::{columns, names};
use crate::error::{Cause, Result};

/// Tokenizers by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokenizers(Arc<BTreeMap<String, Tokenizer>>);

impl Tokenizers {
    /// Reads the files of tokenizers (`tokenizer.json` of Hugging Face).
    pub(crate) fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a Path)>) -> Result<Self> {
        let read = |(name, path): (&str, &Path)| {
            let reason = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
            let tokenizer = Tokenizer::from_file(path)
                .map_err(|error| Cause::Tokenizer { path: path.to_owned(), reason: reason(error) })?;
            Ok((name.to_owned(), tokenizer))
        };
        let read: Result<BTreeMap<_, _>> = files.into_iter().map(read).collect();
        Ok(Tokenizers(Arc::new(read?)))
    }

    fn find(&self, name: Option<&str>) -> PlanResult<&Tokenizer> {
        let names = || self.0.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        match (name, self.0.len()) {
            (_, 0) => exec_err!(
                "there is no tokenizer here; give the session one: `--tokenizer FILE` of `forebay sql`, `forebay serve` and \
                 `forebay run`, `tokenizer=` of `forebay.open` in Python, `tokenizer` of `Options` and of a server's `Builder`"
            ),
            (None, 1) => self.0.values().next().map_or_else(|| exec_err!("no tokenizer"), Ok),
            (None, _) => exec_err!("the session has several tokenizers; name one of {}", names()),
            (Some(name), _) => self
                .0
                .get(name)
                .map_or_else(|| exec_err!("no tokenizer is named {name:?}; there is {}", names()), Ok),
        }
    }
}

pub(super) fn detokenise(tokenizers: Tokenizers) -> ScalarUDF {
    let signature = TypeSignature::OneOf(vec![TypeSignature::Any(1), TypeSignature::Any(2)]);
    let signature = Signature::new(signature, Volatility::Immutable);
    ScalarUDF::new_from_impl(Detokenise { tokenizers, signature, aliases: vec!["detokenize".to_owned()] })
}

#[derive(Debug)]
struct Detokenise {
    tokenizers: Tokenizers,
    signature: Signature,
    aliases: Vec<String>,
}

// Two of one session are the same, two of different sessions never meet.
impl PartialEq for Detokenise {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tokenizers.0, &other.tokenizers.0)
    }
}

impl Eq for Detokenise {}

impl Hash for Detokenise {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.tokenizers.0).hash(state);
    }
}

impl ScalarUDFImpl for Detokenise {
    fn name(&self) -> &'static str {
        "detokenise"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments.first() {
            Some(DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _))
                if item.data_type().is_integer() =>
            {
                Ok(DataType::Utf8)
            }
            Some(DataType::Null) => Ok(DataType::Utf8),
            _ => plan_err!("detokenise takes a list of token ids"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays = columns(arguments)?;
        let tokenizers = names(arrays.get(1))?;
        let Some(lists) = arrays.first() else { return exec_err!("detokenise takes a list of token ids") };
        let lists = cast(lists, &DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))))?;
        let lists = lists.as_list::<i32>();
        let mut texts = StringBuilder::with_capacity(rows, rows * 64);
        for row in 0..rows {
            if lists.is_null(row) || tokenizers.as_ref().is_some_and(|names| names.is_null(row)) {
                texts.append_null();
            } else {
                let tokenizer = self.tokenizers.find(tokenizers.as_ref().map(|names| names.value(row)))?;
                texts.append_value(text(tokenizer, lists.value(row).as_primitive::<Int64Type>())?);
            }
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}

fn text(tokenizer: &Tokenizer, tokens: &Int64Array) -> PlanResult<String> {
    if tokens.null_count() > 0 {
        return exec_err!("detokenise reads token ids, and a list holds a NULL in place of one");
    }
    let id = |token: &i64| u32::try_from(*token);
    let Ok(ids) = tokens.values().iter().map(id).collect::<Result<Vec<u32>, _>>() else {
        return exec_err!("a token id is not negative, and a list holds one that is");
    };
    match tokenizer.decode(&ids, false) {
        Ok(text) => Ok(text),
        Err(error) => exec_err!("tokens without a text: {error}"),
    }
}
