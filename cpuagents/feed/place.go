package feed

// Place is a position in a source that lasts: rows of one document of its journal were read. The
// zero value is the start of the source.
type Place struct {
	// Entry is the last entry of the journal before the document.
	Entry uint64 `json:"entry,omitempty"`
	// Rows is the number of rows of the document that were read, rejected ones included.
	Rows uint64 `json:"rows,omitempty"`
	// Number is the number of rows of the documents before it.
	Number uint64 `json:"number,omitempty"`
	// Local is what rows.LocalTimes knew before the document.
	Local string `json:"local,omitempty"`
	// Document says where the document is, for a source without a journal.
	Document Document `json:"document,omitempty"`
}

// Document is a value of a source as JSON, or empty.
type Document string

// MarshalJSON implements json.Marshaler.
func (d Document) MarshalJSON() ([]byte, error) { return []byte(d), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Document) UnmarshalJSON(data []byte) error {
	*d = Document(data)
	return nil
}
