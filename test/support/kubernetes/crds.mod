// Modules that hold the definitions of custom resources; KEDA in the version of docs/operations/deploy.md.
// Not in go.mod: what they require would change the API server.
module mailkeel.test/crds

go 1.26.0

require (
	github.com/kedacore/keda/v2 v2.17.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
