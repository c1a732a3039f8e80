package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groups are classic ones.
var groups = map[string]feature{
	"groups.commit":      groupsCommit,
	"groups.rebalance":   groupsRebalance,
	"groups.cooperative": groupsCooperative,
	"groups.static":      groupsStatic,
	"groups.list":        groupsList,
	"groups.describe":    groupsDescribe,
	"groups.offsets":     groupsOffsets,
	"groups.delete":      groupsDelete,
}

// member is a consumer of a group, polled until it is stopped.
type member struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
	lock   sync.Mutex
	held   map[int32]bool
	values []int
	steps  []string
}

func (s *scene) join(group, topic string, more ...kgo.Opt) *member {
	m := &member{held: map[int32]bool{}, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(s.ctx)
	m.cancel = cancel
	m.client = s.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, named map[string][]int32) {
			m.step("assigned", named[topic], true)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, named map[string][]int32) {
			m.step("revoked", named[topic], false)
			_ = client.CommitUncommittedOffsets(ctx)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, named map[string][]int32) {
			m.step("lost", named[topic], false)
		}),
	}, more...)...)
	go m.run(ctx)
	return m
}

func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		fetches.EachRecord(func(one *kgo.Record) {
			value, err := strconv.Atoi(string(one.Value))
			check(err)
			m.lock.Lock()
			m.values = append(m.values, value)
			m.lock.Unlock()
		})
	}
}

func (m *member) step(how string, named []int32, has bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range named {
		if has {
			m.held[partition] = true
		} else {
			delete(m.held, partition)
		}
	}
	if len(named) > 0 {
		m.steps = append(m.steps, fmt.Sprintf("%s %d", how, len(named)))
	}
}

func (m *member) partitions() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Sorted(maps.Keys(m.held))
}

func (m *member) read() []int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.values)
}

func (m *member) stepped() []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.steps)
}

func (m *member) stop() {
	m.cancel()
	<-m.done
	m.client.Close()
}

func groupsCommit(s *scene) any {
	topic, group := s.topic("commit", 1), s.name("group")
	s.write(topic, 0, numbers(20))
	open := func() *kgo.Client {
		return s.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	first := open()
	found := s.take(first, 8)
	check(first.CommitRecords(s.ctx, found...))
	first.Close()
	second := open()
	defer second.Close()
	found = append(found, s.take(second, 12)...)
	equal(values(found), numbers(20), "values")
	return len(found)
}

func (s *scene) twoMembers(stem string, balancer kgo.GroupBalancer) []string {
	topic, group := s.topic(stem, 4), s.name(stem)
	first := s.join(group, topic, kgo.Balancers(balancer))
	until("all with the first member", func() bool { return len(first.partitions()) == 4 })
	second := s.join(group, topic, kgo.Balancers(balancer))
	until("two partitions each", func() bool {
		return len(first.partitions()) == 2 && len(second.partitions()) == 2
	})
	var everything []int
	for p := range int32(4) {
		for i := range 5 {
			everything = append(everything, int(p)*10+i)
			s.write(topic, p, []string{strconv.Itoa(int(p)*10 + i)})
		}
	}
	until("all records, once each", func() bool {
		found := append(first.read(), second.read()...)
		slices.Sort(found)
		return slices.Equal(found, everything)
	})
	second.stop()
	until("all with the first member again", func() bool { return len(first.partitions()) == 4 })
	steps := first.stepped()
	first.stop()
	return steps
}

func groupsRebalance(s *scene) any {
	for _, balancer := range []kgo.GroupBalancer{
		kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(),
	} {
		steps := s.twoMembers("eager", balancer)
		holds(slices.Contains(steps, "revoked 4"), "all given up for a while: "+strings.Join(steps, ", "))
	}
	return "range, roundrobin, sticky"
}

func groupsCooperative(s *scene) any {
	steps := s.twoMembers("cooperative", kgo.CooperativeStickyBalancer())
	holds(slices.Contains(steps, "revoked 2") && !slices.Contains(steps, "revoked 4"), "two given up: "+strings.Join(steps, ", "))
	return steps
}

func groupsStatic(s *scene) any {
	topic, group := s.topic("static", 4), s.name("static")
	first := s.join(group, topic, kgo.InstanceID("one"))
	until("all with the first member", func() bool { return len(first.partitions()) == 4 })
	second := s.join(group, topic, kgo.InstanceID("two"))
	until("two partitions each", func() bool {
		return len(first.partitions()) == 2 && len(second.partitions()) == 2
	})
	had, steps := second.partitions(), first.stepped()
	second.stop()
	second = s.join(group, topic, kgo.InstanceID("two"))
	until("what it had before", func() bool { return slices.Equal(second.partitions(), had) })
	equal(first.stepped(), steps, "steps of the other member")
	first.stop()
	second.stop()
	answers, err := s.admin.LeaveGroup(s.ctx, kadm.LeaveGroup(group).InstanceIDs("one", "two", "nobody"))
	check(err)
	seen := map[string]string{}
	for instance, one := range answers {
		seen[instance] = text(one.Err)
	}
	return seen
}

// emptied makes a group that read its topic, committed and left.
func (s *scene) emptied(stem string) (topic, group string) {
	topic, group = s.topic(stem, 1), s.name(stem)
	s.write(topic, 0, numbers(10))
	client := s.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	check(client.CommitRecords(s.ctx, s.take(client, 10)...))
	return topic, group
}

// withBusy plays something while a group has a member.
func (s *scene) withBusy(topic string, play func(group string)) {
	group := s.name("busy")
	busy := s.join(group, topic, kgo.ClientID("somebody"))
	defer busy.stop()
	until("a busy group", func() bool { return len(busy.partitions()) == 1 })
	play(group)
}

func groupsList(s *scene) any {
	topic, empty := s.emptied("listed")
	seen := map[string]any{}
	s.withBusy(topic, func(busy string) {
		found, err := s.admin.ListGroups(s.ctx)
		check(err)
		for name, group := range map[string]string{"empty": empty, "busy": busy} {
			seen[name] = []string{found[group].ProtocolType, found[group].State}
		}
		some, err := s.admin.ListGroups(s.ctx, "Empty")
		check(err)
		_, there := some[empty]
		_, wrong := some[busy]
		holds(there && !wrong, "only the empty ones")
		classic, err := s.admin.ListGroupsByType(s.ctx, []string{"classic"})
		check(err)
		_, there = classic[busy]
		holds(there, "a classic one")
	})
	return seen
}

func groupsDescribe(s *scene) any {
	topic, empty := s.emptied("described")
	seen := map[string]any{}
	s.withBusy(topic, func(busy string) {
		found, err := s.admin.DescribeGroups(s.ctx, busy, empty, "foreign-missing")
		check(err)
		for name, group := range map[string]string{"busy": busy, "empty": empty, "none": "foreign-missing"} {
			one := found[group]
			seen[name] = []any{one.State, one.ProtocolType, one.Protocol, len(one.Members), text(one.Err), one.ErrMessage}
		}
		described := found[busy]
		one := described.Members[0]
		equal(described.JoinTopics(), []string{topic}, "topics")
		assigned := described.AssignedPartitions()
		equal(len(assigned[topic]), 1, "partitions")
		seen["member"] = []any{one.ClientID, one.ClientHost, one.InstanceID}
		lags, err := s.admin.Lag(s.ctx, empty)
		check(err)
		check(lags.Error())
		lag, _ := lags[empty].Lag.Lookup(topic, 0)
		equal([]int64{lag.Commit.At, lag.End.Offset, lag.Lag}, []int64{10, 10, 0}, "lag")
	})
	return seen
}

func groupsOffsets(s *scene) any {
	topic, group := s.emptied("offsets")
	commit := func(group string, partition int32, at int64) string {
		asked := kadm.Offsets{}
		asked.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: "back"})
		answers, err := s.admin.CommitOffsets(s.ctx, group, asked)
		check(err)
		one, _ := answers.Lookup(topic, partition)
		return text(one.Err)
	}
	fetch := func() []any {
		found, err := s.admin.FetchOffsets(s.ctx, group)
		check(err)
		one, there := found.Lookup(topic, 0)
		return []any{one.At, one.Metadata, one.LeaderEpoch, there}
	}
	remove := func(group string) string {
		answers, err := s.admin.DeleteOffsets(s.ctx, group, kadm.TopicsSet{topic: {0: {}}})
		if err != nil {
			return text(err)
		}
		wrong, _ := answers.Lookup(topic, 0)
		return text(wrong)
	}
	seen := map[string]any{"at first": fetch()[0], "set": commit(group, 0, 3), "then": fetch(), "missing": commit(group, 7, 3)}
	equal(seen["then"].([]any)[0], int64(3), "the offset that was set")
	s.withBusy(topic, func(busy string) {
		seen["busy"] = []string{commit(busy, 0, 1), remove(busy)}
	})
	seen["removed"] = remove(group)
	seen["left"] = fetch()
	seen["unknown"] = remove("foreign-missing")
	return seen
}

func groupsDelete(s *scene) any {
	topic, group := s.emptied("deleted")
	_, err := s.admin.DeleteGroup(s.ctx, group)
	check(err)
	seen := []string{}
	s.withBusy(topic, func(busy string) {
		answers, err := s.admin.DeleteGroups(s.ctx, group, busy)
		check(err)
		seen = append(seen, text(answers[group].Err), text(answers[busy].Err))
	})
	return seen
}
