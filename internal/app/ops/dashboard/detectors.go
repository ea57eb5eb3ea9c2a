package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
)

// The detectors that last. Their swarms are among the others.
var (
	detectorName   = param{name: "name", in: "path", kind: "string", doc: "name of a detector"}
	detectorsRoute = route{
		method: http.MethodGet, path: "detectors", name: "listDetectors", summary: "All detectors that last.",
		answer: []cluster.DetectorView{}, lasts: 2 * time.Second,
		ask: func(ctx context.Context, o *Options, _ params) (any, error) {
			all, err := o.Cluster.Detectors(ctx)
			return list(all), err
		},
	}
	detectorRoute = route{
		method: http.MethodGet, path: "detectors/{name}", name: "getDetector", summary: "One detector.",
		params: []param{detectorName}, answer: cluster.DetectorView{}, lasts: time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			return o.Cluster.Detector(ctx, p["name"])
		},
	}
	explainDetectorRoute = route{
		method: http.MethodGet, path: "detectors/{name}/explain", name: "explainDetector",
		summary: "Why a detector does not progress.", params: []param{detectorName}, answer: explain.Reason{},
		lasts: 3 * time.Second,
		ask: func(ctx context.Context, o *Options, p params) (any, error) {
			return o.Cluster.ExplainDetector(ctx, p["name"])
		},
	}
)
