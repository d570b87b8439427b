//! The reference policy as a rollout worker's generator: where the two adapters are joined.

use std::hash::Hasher;

use forebay_pipeline::route::Router;
use forebay_rollout_adapter::Failure;
use forebay_rollout_adapter::generator::{Generator, Request, Response};
use forebay_trainer_adapter::generation::Generator as PolicyGenerator;
use forebay_trainer_adapter::{CpuDevice, GenerateOptions, GenerateRequest, SampleKey};

use super::policies::Published;

/// Samples from the published weights.
pub(super) struct ReferenceGenerator {
    generator: PolicyGenerator<CpuDevice>,
    published: Published,
    router: std::sync::Arc<Router>,
    options: GenerateOptions,
    seed: u64,
}

impl ReferenceGenerator {
    pub(super) fn new(
        published: Published,
        router: std::sync::Arc<Router>,
        options: GenerateOptions,
        seed: u64,
    ) -> Self {
        ReferenceGenerator {
            generator: PolicyGenerator::new(&CpuDevice::inline()),
            published,
            router,
            options,
            seed,
        }
    }
}

impl Generator for ReferenceGenerator {
    fn generate(
        &mut self,
        agent: &str,
        version: u64,
        requests: &[Request<'_>],
    ) -> Result<Vec<Response>, Failure> {
        let weights = self.published.at(self.router.policy_of(agent)?, version)?;
        let keyed: Vec<GenerateRequest<'_>> = requests
            .iter()
            .map(|request| GenerateRequest { prompt: request.prompt, key: self.key(agent, version, request) })
            .collect();
        let generated = self.generator.generate(&weights.policy, &keyed, &self.options)?;
        let response =
            |g: forebay_trainer_adapter::Generation| Response { tokens: g.tokens, logprobs: g.log_probs };
        Ok(generated.into_iter().map(response).collect())
    }

    fn fingerprint(&self, agent: &str, version: u64) -> String {
        let policy = self.router.policy_of(agent).unwrap_or_default();
        self.published.at(policy, version).map(|weights| weights.fingerprint).unwrap_or_default()
    }
}

impl ReferenceGenerator {
    /// The random numbers of a sample follow from who it is and nothing else.
    fn key(&self, agent: &str, version: u64, request: &Request<'_>) -> SampleKey {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.write(agent.as_bytes());
        hasher.write(b"/");
        hasher.write(request.sample.to_string().as_bytes());
        let attempt = u32::try_from(request.attempt).unwrap_or(u32::MAX);
        SampleKey { seed: self.seed, version, sample: hasher.finish(), attempt }
    }
}
