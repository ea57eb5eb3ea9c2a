package dashboard

import (
	"context"
	"fmt"
	"net/http"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// maxComputeBody bounds the body of a request to compute in bytes: a text whose characters are
// escaped.
const maxComputeBody = 2*swarms.MaxExpression + 1<<10

var errNoCompute = fmt.Errorf("this dashboard computes nothing: %w", jobs.ErrNotFound)

// compute answers with the results of the expression of a request. The answer is not shared: the
// next request is for later states of the agents.
func (s *Server) compute(w http.ResponseWriter, r *httpapi.Request) error {
	if err := isJSON(r.Request); err != nil {
		return err
	}
	var in swarmclient.ComputeRequest
	if err := decodeBody(w, r, maxComputeBody, &in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), actFor)
	defer cancel()
	swarm, err := s.o.Cluster.State().Swarm(r.Params["name"])
	if err == nil && s.o.Compute == nil {
		err = errNoCompute
	}
	var got *swarmclient.ComputeAnswer
	if err == nil {
		got, err = s.o.Compute(ctx, swarm.ID, in)
	}
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, got)
	return nil
}
