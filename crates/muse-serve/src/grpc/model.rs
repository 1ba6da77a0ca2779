//! `ModelService` over gRPC.

use muse_proto::v1::model_service_server::ModelService;
use muse_proto::v1::{
    GetModelRequest, GetModelResponse, ListModelsRequest, ListModelsResponse, Model, WeightFormat,
};
use tonic::{Request, Response, Status};

use super::call::Call;
use super::convert;
use crate::service::Service;

/// Implements `ModelService`.
pub struct ModelApi {
    service: Service,
}

impl ModelApi {
    pub(super) fn with_service(service: Service) -> Self {
        Self { service }
    }

    fn model(&self) -> Model {
        let app = self.service.app();
        let card = &app.model;
        let format =
            |(name, share): &(String, f32)| WeightFormat { name: name.clone(), share: *share };
        Model {
            name: card.name.clone(),
            architecture: card.architecture.clone(),
            max_positions: card.max_positions,
            vocabulary: card.vocab,
            parameters: card.parameters,
            formats: card.formats.iter().map(format).collect(),
            backend: card.backend.clone(),
            draft_width: card.draft_width,
            loaded_at_seconds: card.loaded_at,
            has_tokenizer: app.tokenizer.is_some(),
            default_sampling: Some(convert::default_sampling(&app.sampling)),
            stop_ids: convert::ids(&app.stop),
        }
    }
}

#[tonic::async_trait]
impl ModelService for ModelApi {
    async fn list_models(
        &self,
        _: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        Ok(Response::new(ListModelsResponse { models: vec![self.model()] }))
    }

    async fn get_model(
        &self,
        request: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        let call = Call::of(&request);
        let name = request.into_inner().name;
        self.service.check_model(Some(&name)).map_err(|error| call.status(error))?;
        Ok(Response::new(GetModelResponse { model: Some(self.model()) }))
    }
}
