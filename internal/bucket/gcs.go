package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob/gcsblob"
	"google.golang.org/api/option"
)

// openGCS opens a bucket of Google's store. The opener of gocloud.dev is not used because it prints
// what it does not find to the standard output.
func openGCS(ctx context.Context, u *url.URL) (remote, error) {
	options := []option.ClientOption{storage.WithJSONReads()}
	for k, v := range u.Query() {
		switch {
		case k == "endpoint":
			e, err := url.Parse(v[0])
			if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.RawQuery != "" {
				return remote{}, fmt.Errorf("endpoint %q: write the URL of a store", v[0])
			}
			options = append(options, option.WithEndpoint(strings.TrimRight(v[0], "/")+"/storage/v1/"))
		case k == "anonymous" && v[0] == "true":
			options = append(options, option.WithoutAuthentication())
		default:
			return remote{}, fmt.Errorf("unknown query parameter %s=%s: use endpoint=URL and anonymous=true", k, v[0])
		}
	}
	client, err := storage.NewClient(ctx, options...)
	if err != nil {
		return remote{}, err
	}
	b, err := gcsblob.OpenBucket(ctx, nil, u.Host, &gcsblob.Options{Client: client})
	if err != nil {
		return remote{}, errors.Join(err, client.Close())
	}
	return remote{b, client}, nil
}
