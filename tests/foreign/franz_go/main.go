// franz-go on the features of the matrix: clients/franz_go.py builds and runs this program.
//
// It prints one line of JSON per feature, as scene.py does for the clients that Python can drive.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	patience  = 30 * time.Second
	firstTime = int64(1_700_000_000_000) // timestamp of records for which it matters, in ms
)

// scene is the broker or cluster that is played on.
type scene struct {
	bootstrap []string
	brokers   int
	login     []kgo.Opt
	admin     *kadm.Client
	ctx       context.Context
}

type feature func(*scene) any

func main() {
	bootstrap := flag.String("bootstrap", "", "addresses")
	brokers := flag.Int("brokers", 1, "how many there are")
	only := flag.String("only", "", "features, separated by commas")
	version := flag.String("version", "?", "of franz-go")
	ca := flag.String("ca", "", "file of the authority to trust, where clients log in")
	mechanism := flag.String("mechanism", "SCRAM-SHA-512", "of the login")
	username := flag.String("username", "", "of the login")
	password := flag.String("password", "", "of the login")
	flag.Parse()
	tell(map[string]any{"feature": "version", "status": "ok", "seen": *version})
	played := map[string]feature{}
	for _, some := range []map[string]feature{records, administration, groups, transactions} {
		for name, one := range some {
			played[name] = one
		}
	}
	s := &scene{bootstrap: strings.Split(*bootstrap, ","), brokers: *brokers}
	if *ca != "" {
		s.login = login(*ca, *mechanism, *username, *password)
	}
	for _, name := range strings.Split(*only, ",") {
		s.play(name, played[name])
	}
}

func (s *scene) play(name string, one feature) {
	begun := time.Now()
	line := map[string]any{"feature": name, "status": "ok"}
	defer func() {
		if wrong := recover(); wrong != nil {
			line["status"] = "failed"
			line["error"] = fmt.Sprintf("%v\n%s", wrong, debug.Stack())
		}
		line["seconds"] = time.Since(begun).Seconds()
		tell(line)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	s.ctx = ctx
	client := s.client()
	defer client.Close()
	s.admin = kadm.NewClient(client)
	line["seen"] = one(s)
}

var random = regexp.MustCompile(`(foreign-[a-z-]+)-[0-9a-f]{8}\b`) // what `name` makes

func tell(line map[string]any) {
	text, err := json.Marshal(line)
	check(err)
	fmt.Fprintln(os.Stdout, random.ReplaceAllString(string(text), "$1"))
}

// login is how a client logs in, over TLS.
func login(ca, mechanism, username, password string) []kgo.Opt {
	pem, err := os.ReadFile(ca)
	check(err)
	trusted := x509.NewCertPool()
	holds(trusted.AppendCertsFromPEM(pem), "an authority in "+ca)
	var how sasl.Mechanism
	switch mechanism {
	case "PLAIN":
		how = plain.Auth{User: username, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		how = scram.Auth{User: username, Pass: password}.AsSha256Mechanism()
	default:
		how = scram.Auth{User: username, Pass: password}.AsSha512Mechanism()
	}
	return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(how)}
}

// options are those of every client.
func (s *scene) options() []kgo.Opt {
	usual := []kgo.Opt{kgo.SeedBrokers(s.bootstrap...), kgo.MetadataMinAge(50 * time.Millisecond)}
	return append(usual, s.login...)
}

func (s *scene) client(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(s.options(), more...)...)
	check(err)
	return client
}

func (s *scene) name(stem string) string {
	return fmt.Sprintf("foreign-%s-%08x", stem, rand.Uint32())
}

func (s *scene) replicas() int16 { return int16(min(3, s.brokers)) }

// topic makes one; configs are name, value, name, value.
func (s *scene) topic(stem string, partitions int32, configs ...string) string {
	name := s.name(stem)
	set := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		set[configs[i]] = &configs[i+1]
	}
	_, err := s.admin.CreateTopic(s.ctx, partitions, s.replicas(), set, name)
	check(err)
	until("partitions of "+name, func() bool { return s.count(name) == int(partitions) })
	return name
}

// count returns how many partitions of a topic have a leader, -1 where there is no such topic.
func (s *scene) count(topic string) int {
	found, err := s.admin.ListTopics(s.ctx)
	check(err)
	detail, there := found[topic]
	if !there || detail.Err != nil {
		return -1
	}
	led := 0
	for _, one := range detail.Partitions {
		if one.Leader >= 0 && one.Err == nil {
			led++
		}
	}
	return led
}

// write produces values into a partition; their offsets.
func (s *scene) write(topic string, partition int32, values []string, more ...kgo.Opt) []int64 {
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	}
	return s.send(records, more...)
}

func (s *scene) send(records []*kgo.Record, more ...kgo.Opt) []int64 {
	options := append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)
	client := s.client(options...)
	defer client.Close()
	check(client.ProduceSync(s.ctx, records...).FirstErr())
	offsets := make([]int64, len(records))
	for i, one := range records {
		offsets[i] = one.Offset
	}
	return offsets
}

// read reads so many records of the partitions of a topic, by assignment.
func (s *scene) read(topic string, count int, partitions int32, at kgo.Offset, more ...kgo.Opt) []*kgo.Record {
	where := map[int32]kgo.Offset{}
	for p := range partitions {
		where[p] = at
	}
	assigned := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: where})
	client := s.client(append([]kgo.Opt{assigned, kgo.FetchMaxWait(100 * time.Millisecond)}, more...)...)
	defer client.Close()
	return s.take(client, count)
}

func (s *scene) take(client *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for len(found) < count {
		fetches := client.PollRecords(ctx, count-len(found))
		check(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	return found
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(seen, expected any, what string) {
	if !reflect.DeepEqual(seen, expected) {
		panic(fmt.Sprintf("%s: %v, expected %v", what, seen, expected))
	}
}

func holds(condition bool, what string) {
	if !condition {
		panic(what)
	}
}

func until(what string, look func() bool) {
	for deadline := time.Now().Add(patience); !look(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			panic("still not so: " + what)
		}
	}
}

// numbers makes the decimal numbers from 0 on.
func numbers(count int) []string {
	made := make([]string, count)
	for i := range made {
		made[i] = fmt.Sprint(i)
	}
	return made
}

func values(records []*kgo.Record) []string {
	found := make([]string, len(records))
	for i, one := range records {
		found[i] = string(one.Value)
	}
	return found
}

// text is an error as it is compared between brokers.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
