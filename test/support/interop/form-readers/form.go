// Reads a multipart form as Go does: form FILE CONTENT-TYPE. Prints fields and files as JSON.
package main

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"os"
)

func main() {
	body, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	_, params, err := mime.ParseMediaType(os.Args[2])
	if err != nil {
		panic(err)
	}
	fields, files := [][]string{}, [][]string{}
	reader := multipart.NewReader(body, params["boundary"])
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			panic(err)
		}
		if part.FileName() == "" {
			fields = append(fields, []string{part.FormName(), string(content)})
		} else {
			files = append(files, []string{part.FormName(), part.FileName()})
		}
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"fields": fields, "files": files})
}
