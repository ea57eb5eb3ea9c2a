package natsconn

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// PushAccounts hands the signed claims of accounts to running servers, which follow them at once:
// users that are revoked lose their connections. The login must be one of the system account. A
// server that is away gets them from the other servers when it is back.
func PushAccounts(ctx context.Context, o Options, claims []string) error {
	nc, refused, where, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, text := range claims {
		var answer struct {
			Error *struct {
				Description string `json:"description"`
			} `json:"error"`
		}
		err := refused.do(ctx, func(ctx context.Context) error {
			try, cancel := context.WithTimeout(ctx, apiTimeout)
			defer cancel()
			m, err := nc.RequestWithContext(try, "$SYS.REQ.CLAIMS.UPDATE", []byte(text))
			if err != nil {
				return err
			}
			return json.Unmarshal(m.Data, &answer)
		})
		if err != nil {
			return refused.lostError(fmt.Errorf("hand accounts to %s: %w", where, err))
		}
		if answer.Error != nil {
			return jobs.Errorf(jobs.CodeInvalid, "hand accounts to %s: the server refuses: %s: it must have been "+
				"started with the auth.conf of the same folder", where, answer.Error.Description)
		}
	}
	return nil
}
