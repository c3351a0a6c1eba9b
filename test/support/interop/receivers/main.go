// What SendGrid and Mailgun publish for receivers in Go, behind net/http, as independent consumers of our posts.
//
// Usage: receivers
//
// /sendgrid is read by sendgrid-go's inbound parser, /mailgun by mailgun-go with the key that was posted to /key. Prints
// {"listening": PORT} once it takes requests, then one JSON line for every post. Ends when standard input ends.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"sync"

	"github.com/mailgun/mailgun-go/v4"
	"github.com/sendgrid/sendgrid-go/helpers/inbound"
)

type attachment struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	SHA256 string `json:"sha256"`
}

type received struct {
	Fields      []string          `json:"fields"`
	From        string            `json:"from"`
	To          []string          `json:"to"`
	Subject     string            `json:"subject"`
	Text        string            `json:"text"`
	Headers     map[string]string `json:"headers"`
	Attachments []attachment      `json:"attachments"`
	// Whether the signature is good (Mailgun), or SPF and DKIM passed (SendGrid).
	Verified bool `json:"verified"`
	// What the parser itself broke at.
	Fault string `json:"fault"`
}

var saying sync.Mutex

func say(value any) {
	saying.Lock()
	defer saying.Unlock()
	json.NewEncoder(os.Stdout).Encode(value)
}

func fieldsOf(request *http.Request) []string {
	names := []string{}
	for name := range request.MultipartForm.Value {
		names = append(names, name)
	}
	for name := range request.MultipartForm.File {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func hash(from io.Reader) string {
	sum := sha256.New()
	io.Copy(sum, from)
	return hex.EncodeToString(sum.Sum(nil))
}

func sendgrid(request *http.Request) (out received) {
	defer func() {
		if fault := recover(); fault != nil {
			out.Fault = fmt.Sprint(fault)
		}
	}()
	email, err := inbound.ParseWithAttachments(request)
	if err != nil {
		out.Fault = err.Error()
		return out
	}
	out.Fields = fieldsOf(request)
	out.From, out.To = email.Envelope.From, email.Envelope.To
	out.Subject, out.Text, out.Headers = email.ParsedValues["subject"], email.TextBody, email.Headers
	for _, file := range email.ParsedAttachments {
		out.Attachments = append(out.Attachments, attachment{file.Filename, file.ContentType, hash(file.File)})
	}
	sort.Slice(out.Attachments, func(i, j int) bool { return out.Attachments[i].Name < out.Attachments[j].Name })
	out.Verified = email.Validate() == nil
	return out
}

func readMailgun(request *http.Request, key string) (out received) {
	if err := request.ParseMultipartForm(32 << 20); err != nil {
		out.Fault = err.Error()
		return out
	}
	form := request.MultipartForm.Value
	message := mailgun.ExtractForwardedMessage(form)
	out.Fields = fieldsOf(request)
	out.From, out.To = message.Sender, []string{message.Recipient}
	out.Subject, out.Text, out.Headers = message.Subject, message.BodyPlain, message.MessageHeaders
	for _, files := range request.MultipartForm.File {
		file, err := files[0].Open()
		if err != nil {
			out.Fault = err.Error()
			return out
		}
		out.Attachments = append(out.Attachments, attachment{files[0].Filename, files[0].Header.Get("Content-Type"), hash(file)})
	}
	client := mailgun.NewMailgun("in.test", "of no use here")
	client.SetWebhookSigningKey(key)
	verified, err := client.VerifyWebhookSignature(mailgun.Signature{
		TimeStamp: request.FormValue("timestamp"),
		Token:     request.FormValue("token"),
		Signature: request.FormValue("signature"),
	})
	if err != nil {
		out.Fault = err.Error()
	}
	out.Verified = verified
	return out
}

func main() {
	key := ""
	http.HandleFunc("/key", func(_ http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		key = string(body)
	})
	http.HandleFunc("POST /sendgrid", func(_ http.ResponseWriter, request *http.Request) { say(sendgrid(request)) })
	http.HandleFunc("POST /mailgun", func(_ http.ResponseWriter, request *http.Request) { say(readMailgun(request, key)) })
	http.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(map[string]int{"listening": listener.Addr().(*net.TCPAddr).Port})
	go http.Serve(listener, nil)
	io.Copy(io.Discard, os.Stdin)
}
