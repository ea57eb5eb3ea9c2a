package main

import (
	"bytes"
	"os"
	"testing"
)

// TestAnswers: the file is what the program writes.
func TestAnswers(t *testing.T) {
	want, err := os.ReadFile("answers.csv")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := write(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the program writes other answers than answers.csv has, or fails: %v", err)
	}
}
