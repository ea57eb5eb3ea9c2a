package swarms

import "github.com/exoswarm/exoswarm/jobs"

// ModelRef names a model in the place where the GPU agents of a cluster keep snapshots.
type ModelRef struct {
	Name   string `json:"name"`   // an id
	SHA256 string `json:"sha256"` // of its manifest, 64 hexadecimal digits; the manifest has the digest of the file
}

// Validate returns an error of jobs.CodeInvalid unless name and digest are well formed.
func (r ModelRef) Validate() error {
	if err := jobs.CheckID("model", r.Name); err != nil {
		return err
	}
	if !shaPattern.MatchString(r.SHA256) {
		return invalid("model %s: sha256 %.100q: use the 64 hexadecimal digits of its manifest", r.Name, r.SHA256)
	}
	return nil
}

// Adopt changes the weights of all agents of a shard to the weights of a model, from the next entry
// on. Their states stay. Adopted is the same, as the answer.
type Adopt struct {
	Version int `json:"v"`
	ModelRef
}

// DecodeAdopt reads the data of an EntryAdopt or EntryAdopted, as DecodeTick does.
func DecodeAdopt(data []byte) (a Adopt, err error) {
	if err := decodeEntry("adopt", data, &a, &a.Version); err != nil {
		return a, err
	}
	return a, a.Validate()
}
