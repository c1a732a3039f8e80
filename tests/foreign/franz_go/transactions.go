package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var transactions = map[string]feature{
	"transactions.commit":   transactionsCommit,
	"transactions.offsets":  transactionsOffsets,
	"transactions.fence":    transactionsFence,
	"transactions.copy":     transactionsCopy,
	"transactions.describe": transactionsDescribe,
}

// What transactions.py says: partitions, how the transactions end, records in each partition.
const (
	overPartitions = int32(3)
	ofEach         = 5
	copied         = 400
	copiedFrom     = int32(4)
)

var ends = []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryCommit, kgo.TryAbort}

func valuesOf(number int, partition int32) []string {
	made := make([]string, ofEach)
	for i := range made {
		made[i] = fmt.Sprintf("%d-%d-%d", number, partition, i)
	}
	return made
}

func (s *scene) transactional(name string, more ...kgo.Opt) *kgo.Client {
	return s.client(append([]kgo.Opt{kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)...)
}

func (s *scene) put(client *kgo.Client, topic string, partition int32, values ...string) error {
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	}
	return client.ProduceSync(s.ctx, records...).FirstErr()
}

// committed reads so many records that a reader of committed ones sees.
func (s *scene) committed(topic string, count int, partitions int32) []string {
	return values(s.read(topic, count, partitions, kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(kgo.ReadCommitted())))
}

func transactionsCommit(s *scene) any {
	topic := s.topic("transactions", overPartitions)
	client := s.transactional(s.name("id"))
	defer client.Close()
	all, kept := []string{}, []string{}
	for number, end := range ends {
		check(client.BeginTransaction())
		for p := range overPartitions {
			some := valuesOf(number, p)
			check(s.put(client, topic, p, some...))
			all = append(all, some...)
			if end == kgo.TryCommit {
				kept = append(kept, some...)
			}
		}
		check(client.EndTransaction(s.ctx, end))
	}
	check(client.BeginTransaction())
	check(client.EndTransaction(s.ctx, kgo.TryCommit)) // an empty one
	check(client.BeginTransaction())
	check(s.put(client, topic, 0, "open"))
	newest, err := s.admin.ListEndOffsets(s.ctx, topic)
	check(err)
	stable, err := s.admin.ListCommittedOffsets(s.ctx, topic)
	check(err)
	seen := []int64{}
	for p := range overPartitions {
		end, _ := newest.Lookup(topic, p)
		last, _ := stable.Lookup(topic, p)
		seen = append(seen, end.Offset, last.Offset)
	}
	equal(seen, []int64{31, 30, 30, 30, 30, 30}, "ends, and those of committed records")
	sorted := func(found []string) []string { slices.Sort(found); return found }
	uncommitted := values(s.read(topic, len(all)+1, overPartitions, kgo.NewOffset().AtStart()))
	equal(sorted(uncommitted), sorted(append(all, "open")), "all values")
	equal(sorted(s.committed(topic, len(kept), overPartitions)), sorted(kept), "committed values")
	check(client.EndTransaction(s.ctx, kgo.TryCommit))
	equal(sorted(s.committed(topic, len(kept)+1, overPartitions)), sorted(append(kept, "open")), "committed values")
	return seen
}

func transactionsOffsets(s *scene) any {
	source, target, group := s.topic("source", 1), s.topic("target", 1), s.name("group")
	s.write(source, 0, numbers(10))
	session := s.session(source, group, s.name("id"))
	at := func() int64 {
		found, err := s.admin.FetchOffsets(s.ctx, group)
		check(err)
		one, there := found.Lookup(source, 0)
		if !there {
			return -1
		}
		return one.At
	}
	// What a transaction copies once, of four records.
	pass := func(how kgo.TransactionEndTry) bool {
		check(session.Begin())
		found := s.take(session.Client(), 4)
		check(s.put(session.Client(), target, 0, values(found)...))
		done, err := session.End(s.ctx, how)
		check(err)
		return done
	}
	// The first poll ends with the first assignment, so no rebalance ends these.
	seen := []any{pass(kgo.TryAbort), at(), pass(kgo.TryCommit)}
	until("4 committed", func() bool { return at() == 4 })
	seen = append(seen, pass(kgo.TryCommit))
	until("8 committed", func() bool { return at() == 8 })
	equal(seen, []any{false, int64(-1), true, true}, "what was committed")
	check(session.Begin())
	s.take(session.Client(), 2)
	member, generation := session.Client().GroupMetadata()
	holds(member != "" && generation >= 0, "a member of the group")
	left := kmsg.NewPtrLeaveGroupRequest()
	left.Group = group
	left.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member}}
	_, err := left.RequestWith(s.ctx, session.Client())
	check(err)
	done, err := session.End(s.ctx, kgo.TryCommit)
	check(err)
	holds(!done, "who left the group commits nothing")
	session.Close()
	equal(s.committed(target, 8, 1), numbers(8), "values")
	return seen
}

func transactionsFence(s *scene) any {
	topic, name := s.topic("fence", 1), s.name("id")
	zombie := s.transactional(name)
	defer zombie.Close()
	check(zombie.BeginTransaction())
	check(s.put(zombie, topic, 0, "zombie"))
	second := s.transactional(name)
	defer second.Close()
	check(second.BeginTransaction())
	check(s.put(second, topic, 0, "second"))
	late := s.put(zombie, topic, 0, "late")
	holds(late != nil, "a late record is refused")
	err := zombie.EndTransaction(s.ctx, kgo.TryCommit)
	holds(err != nil, "a late end is refused")
	check(second.EndTransaction(s.ctx, kgo.TryCommit))
	equal(s.committed(topic, 1, 1), []string{"second"}, "committed")
	every := s.read(topic, 2, 1, kgo.NewOffset().AtStart())
	equal(values(every), []string{"zombie", "second"}, "all")
	return []any{nameOf(late), nameOf(err), every[1].Offset}
}

// nameOf is the code of the broker in an error.
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return text(err)
}

func (s *scene) session(source, group, name string) *kgo.GroupTransactSession {
	session, err := kgo.NewGroupTransactSession(append(s.options(),
		kgo.TransactionalID(name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
	)...)
	check(err)
	return session
}

// copier copies until ctx ends, and aborts one transaction of five; how many it committed.
func (s *scene) copier(ctx context.Context, session *kgo.GroupTransactSession, target string, done *atomic.Int64) {
	defer session.Close()
	for number := 0; ctx.Err() == nil; {
		fetches := session.PollRecords(ctx, 20)
		found := fetches.Records()
		if len(found) == 0 {
			continue
		}
		number++
		check(session.Begin())
		for _, one := range found {
			session.Produce(s.ctx, &kgo.Record{Topic: target, Partition: one.Partition, Value: one.Value}, nil)
		}
		committed, err := session.End(s.ctx, kgo.TransactionEndTry(number%5 != 3))
		check(err)
		if committed {
			done.Add(int64(len(found)))
		}
	}
}

func transactionsCopy(s *scene) any {
	source, target, group := s.topic("source", copiedFrom), s.topic("target", copiedFrom), s.name("group")
	for p := range copiedFrom {
		some := []string{}
		for n := int(p); n < copied; n += int(copiedFrom) {
			some = append(some, strconv.Itoa(n))
		}
		s.write(source, p, some)
	}
	one, two := s.name("one"), s.name("two")
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var running, leaving sync.WaitGroup
	var done atomic.Int64
	start := func(ctx context.Context, name string, running *sync.WaitGroup) {
		session := s.session(source, group, name)
		running.Go(func() { s.copier(ctx, session, target, &done) })
	}
	short, leave := context.WithCancel(ctx)
	start(ctx, one, &running)
	start(short, two, &leaving)
	until("a third copied", func() bool { return done.Load() >= copied/3 })
	leave()
	leaving.Wait()
	zombie := s.transactional(two) // the id has a transaction that is never ended
	check(zombie.BeginTransaction())
	for p := range copiedFrom {
		check(s.put(zombie, target, p, "lost"))
	}
	start(ctx, two, &running)
	until("all copied", func() bool { return done.Load() >= copied })
	cancel()
	running.Wait()
	zombie.Close()
	found := []int{}
	for _, value := range s.committed(target, copied, copiedFrom) {
		number, err := strconv.Atoi(value)
		check(err)
		found = append(found, number)
	}
	slices.Sort(found)
	for i, number := range found {
		equal(number, i, "each once")
	}
	return len(found)
}

func transactionsDescribe(s *scene) any {
	topic, name := s.topic("described", 2), s.name("open")
	client := s.transactional(name)
	defer client.Close()
	check(client.BeginTransaction())
	for p := range int32(2) {
		check(s.put(client, topic, p, "open"))
	}
	described, err := s.admin.DescribeTransactions(s.ctx, name, "foreign-missing")
	check(err)
	one := described[name]
	holds(one.StartTimestamp > 0, "it has begun")
	seen := map[string]any{
		"open":    []any{one.State, one.TimeoutMillis, text(one.Err), len(one.Topics[topic])},
		"missing": text(described["foreign-missing"].Err),
	}
	listed := func(ids []int64, states []string, pattern string) bool {
		found, err := s.admin.ListTransactionsByTxPattern(s.ctx, ids, states, pattern)
		check(err)
		listing, there := found[name]
		if there {
			equal([]any{listing.State, listing.ProducerID}, []any{one.State, one.ProducerID}, "listed")
		}
		return there
	}
	equal([]bool{
		listed(nil, nil, ""), listed([]int64{one.ProducerID}, []string{"Ongoing"}, name[:len(name)-1]+"."),
		listed([]int64{one.ProducerID + 1_000_000}, nil, ""), listed(nil, []string{"Empty"}, ""), listed(nil, nil, "no-.*"),
	}, []bool{true, true, false, false, false}, "listed by ids, states and pattern")
	producers, err := s.admin.DescribeProducers(s.ctx, kadm.TopicsSet{topic: {0: {}, 1: {}}})
	check(err)
	producers.EachProducer(func(p kadm.DescribedProducer) {
		equal([]any{p.ProducerID, p.ProducerEpoch, p.CurrentTxnStartOffset, p.LastSequence},
			[]any{one.ProducerID, one.ProducerEpoch, int64(0), int32(0)}, "a producer")
	})
	equal(len(producers[topic].Partitions), 2, "partitions")
	check(client.EndTransaction(s.ctx, kgo.TryAbort))
	state := func() string {
		found, err := s.admin.DescribeTransactions(s.ctx, name)
		check(err)
		return found[name].State
	}
	until("CompleteAbort", func() bool { return state() == "CompleteAbort" })
	return seen
}
