// Verifies a tlog-proof by the implementation that Go's own checksum database uses: a key, a proof, and nothing of Glovebox.
package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return value
}

func main() {
	verifier := must(note.NewVerifier(strings.TrimSpace(string(must(os.ReadFile(os.Args[1]))))))
	text := string(must(os.ReadFile(os.Args[2])))
	head, checkpoint, _ := strings.Cut(text, "\n\n")
	opened := must(note.Open([]byte(checkpoint), note.VerifierList(verifier)))
	lines := strings.Split(opened.Text, "\n")
	size := must(strconv.ParseInt(lines[1], 10, 64))
	root := must(tlog.ParseHash(lines[2]))
	var entry []byte
	var index int64
	var proof tlog.RecordProof
	for number, line := range strings.Split(head, "\n") {
		switch word, rest, _ := strings.Cut(line, " "); {
		case number == 0 && line == "c2sp.org/tlog-proof@v1":
		case word == "extra":
			entry = must(base64.StdEncoding.DecodeString(rest))
		case word == "index":
			index = must(strconv.ParseInt(rest, 10, 64))
		default:
			proof = append(proof, must(tlog.ParseHash(line)))
		}
	}
	if err := tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(entry)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("entry %d of %d is in %s\n", index, size, lines[0])
}
