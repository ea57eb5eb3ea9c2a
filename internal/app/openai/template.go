package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
	"github.com/exoswarm/exoswarm/jobs"
)

// Form is how a model reads a conversation. A chat template of a model is looked up by its digest
// in a fixed list, and never executed.
type Form struct {
	name  string
	turns func(messages []Message) []part
	// ends are the texts of special tokens that end a turn, beside the ends of the tokenizer.
	ends []string
	// stops are the texts that end a turn of a form without special tokens.
	stops []string
}

// part is text of a prompt. Only the texts of the form are read as special tokens: what a user
// writes never becomes one.
type part struct {
	text    string
	special bool
}

func special(text string) part { return part{text, true} }

func plain(text string) part { return part{text, false} }

// chatml returns the form of ChatML. Without a system message a conversation begins with system, if
// that is not empty.
func chatml(system string) func([]Message) []part {
	return func(messages []Message) (all []part) {
		if system != "" && (len(messages) == 0 || messages[0].Role != roleSystem) {
			messages = append([]Message{{Role: roleSystem, Content: Content(system)}}, messages...)
		}
		for _, m := range messages {
			all = append(all, special("<|im_start|>"), plain(m.Role+"\n"+string(m.Content)), special("<|im_end|>"),
				plain("\n"))
		}
		return append(all, special("<|im_start|>"), plain(roleAssistant+"\n"))
	}
}

func llama3(messages []Message) []part {
	all := []part{special("<|begin_of_text|>")}
	head := func(role string) {
		all = append(all, special("<|start_header_id|>"), plain(role), special("<|end_header_id|>"))
	}
	for _, m := range messages {
		head(m.Role)
		all = append(all, plain("\n\n"+strings.TrimSpace(string(m.Content))), special("<|eot_id|>"))
	}
	head(roleAssistant)
	return append(all, plain("\n\n"))
}

// llama31 is llama3 whose first message is of the system. The template has the date of each request;
// the form has the date that the template takes without a clock, so that a conversation has the same
// beginning tomorrow.
func llama31(messages []Message) []part {
	system := "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
	if len(messages) > 0 && messages[0].Role == roleSystem {
		system += strings.TrimSpace(string(messages[0].Content))
		messages = messages[1:]
	}
	all := []part{
		special("<|begin_of_text|>"), special("<|start_header_id|>"), plain(roleSystem), special("<|end_header_id|>"),
		plain("\n\n" + system), special("<|eot_id|>"),
	}
	return append(all, llama3(messages)[1:]...)
}

// qwen3 is chatml without the thoughts of the answers before the last message of the user.
func qwen3(messages []Message) []part {
	asked := len(messages) - 1
	for i, m := range messages {
		if m.Role == roleUser {
			asked = i
		}
	}
	messages = slices.Clone(messages)
	for i, m := range messages {
		if m.Role != roleAssistant {
			continue
		}
		content, thoughts := string(m.Content), ""
		if before, _, found := strings.Cut(content, "</think>"); found {
			thoughts = strings.Trim(behind(before, "<think>"), "\n")
			content = strings.TrimLeft(behind(content, "</think>"), "\n")
		}
		if i > asked && (thoughts != "" || i == len(messages)-1) {
			content = "<think>\n" + thoughts + "\n</think>\n\n" + strings.TrimLeft(content, "\n")
		}
		messages[i].Content = Content(content)
	}
	return chatml("")(messages)
}

// behind returns the part of a text behind the last sep, or all of it without one.
func behind(text, sep string) string {
	if at := strings.LastIndex(text, sep); at >= 0 {
		return text[at+len(sep):]
	}
	return text
}

// mistral puts a system message before the first message of the user, because the form has no place
// for it.
func mistral(messages []Message) []part {
	all, before := []part{special("<s>")}, ""
	for _, m := range messages {
		switch m.Role {
		case roleSystem:
			before = string(m.Content) + "\n\n"
		case roleUser:
			all = append(all, plain("[INST] "+before+string(m.Content)+" [/INST]"))
			before = ""
		default:
			all = append(all, plain(string(m.Content)), special("</s>"))
		}
	}
	return all
}

// gopher is the form of the model of examples/model. A system message goes before the first message
// of the user, as in mistral.
func gopher(messages []Message) []part {
	all, before := []part{special("<|begin|>")}, ""
	for _, m := range messages {
		switch m.Role {
		case roleSystem:
			before = string(m.Content) + "\n\n"
		case roleUser:
			all = append(all, special("<|user|>"), plain(before+string(m.Content)))
			before = ""
		default:
			all = append(all, special("<|agent|>"), plain(string(m.Content)), special("<|end|>"))
		}
	}
	return append(all, special("<|agent|>"))
}

func plainTurns(messages []Message) []part {
	var b strings.Builder
	names := map[string]string{roleUser: "User: ", roleAssistant: "Assistant: "}
	for _, m := range messages {
		b.WriteString(names[m.Role] + string(m.Content) + "\n\n")
	}
	return []part{plain(b.String() + "Assistant:")}
}

var forms = []Form{
	{name: "chatml", turns: chatml(""), ends: []string{"<|im_end|>"}},
	{name: "qwen2", turns: chatml("You are a helpful assistant."), ends: []string{"<|im_end|>"}},
	{
		name: "qwen2.5", turns: chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
		ends: []string{"<|im_end|>"},
	},
	{name: "qwen3", turns: qwen3, ends: []string{"<|im_end|>"}},
	{name: "llama3", turns: llama3, ends: []string{"<|eot_id|>"}},
	{name: "llama3.1", turns: llama31, ends: []string{"<|eot_id|>"}},
	{name: "mistral", turns: mistral},
	{name: "gopher", turns: gopher, ends: []string{"<|end|>"}},
	{name: "plain", turns: plainTurns, stops: []string{"\n\nUser:"}},
}

// digests are the names of the forms of known chat templates, by the SHA-256 of their text as
// digestOf has it.
var digests = map[string]string{
	// OpenHermes 2.5, and other models of ChatML.
	"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3": "chatml",
	// Qwen 2, Qwen 2.5 Instruct and Qwen 3.
	"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb": "qwen2",
	"a18cc698dd45623eb707279d08e66f7bb8d76afc89ead84016b88487b395b5cc": "qwen2.5",
	"2df317a15cbc983d9602cc391d33be17237d47ec7eb11ead80fae277143958aa": "qwen3",
	// Llama 3 Instruct, and a later form that reads add_generation_prompt.
	"b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2": "llama3",
	"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122": "llama3",
	// Llama 3.1 and 3.3 Instruct, and Llama 3.2 Instruct.
	"99799a835a31e1d33c4a9c7ee8a0de3923b291a95155ed6dc8efcbd0fe1d0238": "llama3.1",
	"0cac23ffd2b33ff7b039e17ee143a080053318146fdc788f1d49ed4745aa8683": "llama3.1",
	// gopher of examples/model.
	"8dfbf5d3be50063a390792dd3b525fa28e8f35ba136361faf4aae992ea0ca4b8": "gopher",
	// Mistral 7B Instruct 0.2.
	"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7": "mistral",
}

// digestOf returns the digest of a chat template. A line end that is written as an escape counts as
// one, and white space around the text does not count.
func digestOf(template string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(strings.ReplaceAll(template, `\n`, "\n"))))
	return hex.EncodeToString(sum[:])
}

// FormNames returns the names of the forms.
func FormNames() (names []string) {
	for _, f := range forms {
		names = append(names, f.name)
	}
	return names
}

// FormNamed returns the form with a name.
func FormNamed(name string) (Form, error) {
	at := slices.IndexFunc(forms, func(f Form) bool { return f.name == name })
	if at < 0 {
		return Form{}, jobs.Errorf(jobs.CodeInvalid, "chat template %q: use one of %s", name,
			strings.Join(FormNames(), ", "))
	}
	return forms[at], nil
}

// FormOf returns the form of a chat template as a model has it. A model without a template has the
// form gopher if it has the tokens of that, and else the form plain. A template that is not in the
// list is refused with its digest.
func FormOf(template string, t *tokenizer.Tokenizer) (Form, error) {
	if strings.TrimSpace(template) == "" {
		f, err := FormNamed("gopher")
		if _, lacks := f.check(t); err == nil && lacks != nil {
			f, err = FormNamed("plain")
		}
		return f, err
	}
	digest := digestOf(template)
	if name, known := digests[digest]; known {
		return FormNamed(name)
	}
	return Form{}, jobs.Errorf(jobs.CodeInvalid, "the chat template with the digest %s is not known, and templates "+
		"are never executed: name the form that it has, one of %s", digest, strings.Join(FormNames(), ", "))
}

// merge joins neighbours that are both plain: a tokenizer splits the text as a whole.
func merge(all []part) (out []part) {
	for _, p := range all {
		if n := len(out); n > 0 && !p.special && !out[n-1].special {
			out[n-1].text += p.text
			continue
		}
		if p.text != "" {
			out = append(out, p)
		}
	}
	return out
}

// tokens returns the tokens of a prompt.
func tokens(t *tokenizer.Tokenizer, all []part) (ids []int32, err error) {
	for _, p := range merge(all) {
		if p.special {
			id, _ := t.Special(p.text) // checked by check
			ids = append(ids, id)
			continue
		}
		some, err := t.Encode(p.text, false)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// check returns an error unless the tokenizer has all special tokens of the form, and the ids of
// the tokens that end a turn.
func (f Form) check(t *tokenizer.Tokenizer) (ends []int32, err error) {
	for _, p := range f.turns([]Message{{Role: roleUser}, {Role: roleAssistant}}) {
		if !p.special {
			continue
		}
		id, is := t.Special(p.text)
		if !is {
			return nil, jobs.Errorf(jobs.CodeInvalid, "the tokenizer has no special token %s, which the form %s of a "+
				"conversation needs: name the form of the model, one of %s", p.text, f.name,
				strings.Join(FormNames(), ", "))
		}
		if slices.Contains(f.ends, p.text) && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	return ends, nil
}
