package userfile

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestLiveAnswers: the agent waits while rows are written, a message that comes again is written
// once, and what never came is taken from the output.
func TestLiveAnswers(t *testing.T) {
	r, w := io.Pipe()
	closed := make(chan struct{})
	l := newLiveOutput(w, func() { close(closed) })
	first := []byte("1 0\n{\"series\":\"a\",\"row\":1}\n{\"series\":\"b\",\"row\":1}\n")
	for range 2 { // nobody reads yet
		if got := string(l.take(first)); got != "wait" {
			t.Fatalf("while nobody reads: %s", got)
		}
	}
	second := []byte("1 1\n{\"series\":\"a\",\"row\":2}\n")
	if got := string(l.take(second)); got != "wait" {
		t.Fatalf("a piece behind one that is being written: %s", got)
	}
	read := bufio.NewReader(r)
	for range 2 {
		if _, err := read.ReadString('\n'); err != nil {
			t.Fatalf("read a row of the first piece: %v", err)
		}
	}
	if got := string(l.take(first)); got != "ok" {
		t.Fatalf("a piece that is written: %s", got)
	}
	line := make(chan string, 1)
	go func() { s, _ := read.ReadString('\n'); line <- s }()
	if got := string(l.take(second)); got != "ok" || <-line != "{\"series\":\"a\",\"row\":2}\n" {
		t.Fatalf("the next piece: %s", got)
	}
	var rest bytes.Buffer
	output := "{\"series\":\"a\",\"row\":1}\n{\"series\":\"a\",\"row\":2}\n{\"series\":\"a\",\"row\":3}\n" +
		"{\"series\":\"b\",\"row\":1}\n{\"series\":\"b\",\"row\":2}\n"
	if err := l.rest(&rest, strings.NewReader(output)); err != nil || rest.String() != "{\"series\":\"a\","+
		"\"row\":3}\n{\"series\":\"b\",\"row\":2}\n" {
		t.Errorf("the rest is %q, %v", rest.String(), err)
	}
	_ = r.Close()
	if got := string(l.take([]byte("2 0\nx\n"))); got != "stop" {
		t.Errorf("when the reader is gone: %s", got)
	}
	<-closed
	l.end()
	if gone, err := l.failed(); !gone || err == nil {
		t.Errorf("after the reader has gone: gone %v, error %v; want true and an error", gone, err)
	}
}
