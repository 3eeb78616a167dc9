// Appends the lines of standard input to an object, through a gateway. Needs no module.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

var gateway, name = "http://127.0.0.1:8080", "journal"

// ask sends a request and returns the answer with its body. A status above 399 is an answer, too.
func ask(method, path, body string, headers map[string]string) (*http.Response, string) {
	request, err := http.NewRequest(method, gateway+path, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	for key, value := range headers {
		request.Header.Set(key, value)
	}
	if key := os.Getenv("FENCED_API_KEY"); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err) // a lost reply: the write may have been applied
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	return answer, string(content)
}

// acquire waits for the lease of the object, and returns its token, as the gateway signed it.
func acquire() string {
	for {
		headers := map[string]string{"Content-Type": "application/json"}
		answer, body := ask("POST", "/v1/leases/"+name, `{"ttlMs":5000,"waitMs":10000}`, headers)
		if answer.StatusCode == http.StatusConflict { // held: another program has it
			continue
		}
		var lease struct{ Token string }
		if err := json.Unmarshal([]byte(body), &lease); err != nil || lease.Token == "" {
			log.Fatal(body)
		}
		return lease.Token
	}
}

func add(token, line string) {
	headers := map[string]string{"Fencing-Token": token, "Content-Type": "text/plain"}
	present, content := ask("GET", "/v1/objects/"+name, "", nil)
	// The condition refuses a write based on an old value. The token refuses a late holder.
	if present.StatusCode == http.StatusOK {
		headers["If-Match"] = present.Header.Get("ETag")
	} else {
		headers["If-None-Match"], content = "*", ""
	}
	answer, body := ask("PUT", "/v1/objects/"+name, content+line+"\n", headers)
	if answer.StatusCode != http.StatusOK {
		var problem struct{ Type string }
		_ = json.Unmarshal([]byte(body), &problem)
		log.Fatal("refused: ", problem.Type)
	}
}

func main() {
	log.SetFlags(0)
	if url := os.Getenv("FENCED_URL"); url != "" {
		gateway = url
	}
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	token := acquire()
	fmt.Println("holds the lease")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		add(token, input.Text())
		fmt.Println("has written", input.Text())
	}
}
