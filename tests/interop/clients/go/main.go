// franz-go behind the common commands (tests/interop/README.md).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 40 * time.Second

// record is the form of a record in commands and answers; []byte is base64 in JSON and null when nil.
type record struct {
	Topic     string      `json:"topic,omitempty"`
	Partition *int32      `json:"p,omitempty"`
	Offset    int64       `json:"o"`
	Timestamp *int64      `json:"t,omitempty"`
	Key       []byte      `json:"k"`
	Value     []byte      `json:"v"`
	Headers   []headerTup `json:"h"`
}

type headerTup struct {
	name  string
	value []byte
}

func (h headerTup) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *headerTup) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

// place is [topic, partition] or [topic, partition, position].
type place struct {
	topic     string
	partition int32
	at        json.RawMessage
}

func (p *place) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.topic, &p.partition, &p.at})
}

type command struct {
	Op    string `json:"op"`
	ID    string `json:"id"`
	Topic string `json:"topic"`
	Group string `json:"group"`

	Records     []record `json:"records"`
	Compression string   `json:"compression"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	MaxRequest  int32    `json:"max_request_bytes"`

	TransactionalID string `json:"transactional_id"`
	Commit          bool   `json:"commit"`
	Source          string `json:"source"`
	Target          string `json:"target"`
	Isolation       string `json:"isolation"`

	Assign           []place  `json:"assign"`
	Topics           []string `json:"topics"`
	Reset            string   `json:"reset"`
	Assignor         string   `json:"assignor"`
	Instance         string   `json:"instance"`
	SessionTimeoutMs int      `json:"session_timeout_ms"`
	FetchWaitMs      int      `json:"fetch_wait_ms"`
	FetchMinBytes    int32    `json:"fetch_min_bytes"`
	MaxPartition     int32    `json:"max_partition_bytes"`

	Count      int             `json:"count"`
	TimeoutMs  int             `json:"timeout_ms"`
	Partition  int32           `json:"partition"`
	Partitions json.RawMessage `json:"partitions"`
	Before     int64           `json:"before"`
	At         json.RawMessage `json:"at"`
	Offsets    []place         `json:"offsets"`

	Configs map[string]string `json:"configs"`
	Set     map[string]string `json:"set"`
	Delete  []string          `json:"delete"`
}

type answer = map[string]any

// open is a consumer and what its polling goroutine has received.
type open struct {
	client   *kgo.Client
	mu       sync.Mutex
	news     chan struct{}
	arrived  []record
	failure  error
	assigned map[string]map[int32]bool
	group    bool
	done     chan struct{}
}

type program struct {
	bootstrap string
	producers map[string]*kgo.Client
	consumers map[string]*open
	admin     *kadm.Client
}

func main() {
	var start struct{ Bootstrap string }
	if err := json.Unmarshal([]byte(os.Args[1]), &start); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	p := &program{bootstrap: start.Bootstrap, producers: map[string]*kgo.Client{}, consumers: map[string]*open{}}
	admin, err := p.client()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	p.admin = kadm.NewClient(admin)
	say(answer{"ok": answer{"version": "franz-go"}})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		say(p.respond(line))
	}
}

func say(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func (p *program) respond(line []byte) answer {
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		return answer{"error": "bad command", "message": err.Error(), "code": nil}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	result, err := p.run(ctx, &c)
	if err != nil {
		var broker *kerr.Error
		if errors.As(err, &broker) {
			return answer{"error": broker.Message, "message": err.Error(), "code": broker.Code}
		}
		return answer{"error": fmt.Sprintf("%T", err), "message": err.Error(), "code": nil}
	}
	return answer{"ok": result}
}

func (p *program) run(ctx context.Context, c *command) (answer, error) {
	switch c.Op {
	case "produce":
		return p.produce(ctx, c)
	case "producer":
		client, err := p.client(p.transactional(c)...)
		if err != nil {
			return nil, err
		}
		p.producers[c.ID] = client
		_, _, err = client.ProducerID(ctx)
		return answer{}, err
	case "begin":
		return answer{}, p.producers[c.ID].BeginTransaction()
	case "send":
		return p.send(ctx, p.producers[c.ID], c)
	case "end":
		return answer{}, p.producers[c.ID].EndTransaction(ctx, kgo.TransactionEndTry(c.Commit))
	case "close_producer":
		p.producers[c.ID].Close()
		delete(p.producers, c.ID)
		return answer{}, nil
	case "process":
		return p.process(ctx, c)
	case "open":
		return p.open(ctx, c)
	case "take":
		return p.consumers[c.ID].take(c.Count, time.Duration(c.TimeoutMs)*time.Millisecond)
	case "assignment":
		return answer{"partitions": p.consumers[c.ID].assignment()}, nil
	case "pause", "resume":
		return p.pause(c)
	case "commit":
		return p.commit(ctx, c)
	case "close":
		p.consumers[c.ID].close()
		delete(p.consumers, c.ID)
		return answer{}, nil
	case "metadata":
		return p.metadata(ctx)
	case "offsets":
		return p.offsets(ctx, c)
	case "committed":
		return p.committed(ctx, c)
	}
	return p.administer(ctx, c)
}

func (p *program) client(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(p.bootstrap),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryTimeout(wait),
	}
	return kgo.NewClient(append(common, options...)...)
}

// Producing

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"": kgo.AllISRAcks(), "all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

// chosen sends a record to the partition it names, and others by key as Java does.
type chosen struct{ byKey kgo.TopicPartitioner }

func (c chosen) RequiresConsistency(*kgo.Record) bool { return true }

func (c chosen) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return c.byKey.Partition(r, n)
}

func (p *program) produce(ctx context.Context, c *command) (answer, error) {
	client, err := p.producer(c)
	if err != nil {
		return nil, err
	}
	return p.send(ctx, client, c)
}

func (p *program) send(ctx context.Context, client *kgo.Client, c *command) (answer, error) {
	records := make([]*kgo.Record, len(c.Records))
	for i, each := range c.Records {
		r := &kgo.Record{Topic: c.Topic, Key: each.Key, Value: each.Value, Partition: -1}
		if each.Partition != nil {
			r.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			r.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, h := range each.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
		records[i] = r
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([][2]int64, len(records))
	for i, r := range records {
		offsets[i] = [2]int64{int64(r.Partition), r.Offset}
	}
	return answer{"offsets": offsets}, nil
}

func (p *program) producer(c *command) (*kgo.Client, error) {
	name := fmt.Sprint(c.Compression, c.Acks, c.Idempotent, c.MaxRequest)
	if known := p.producers[name]; known != nil {
		return known, nil
	}
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[c.Compression]),
		kgo.RequiredAcks(acks[c.Acks]),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(5 * time.Millisecond),
		partitioner(),
	}
	if c.MaxRequest > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(c.MaxRequest))
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := p.client(options...)
	p.producers[name] = client
	return client, err
}

func partitioner() kgo.Opt {
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic("")
	return kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return chosen{byKey}.Partition
	}))
}

// Transactions

func (p *program) transactional(c *command) []kgo.Opt {
	options := []kgo.Opt{kgo.TransactionalID(c.TransactionalID), partitioner()}
	if c.TimeoutMs > 0 {
		options = append(options, kgo.TransactionTimeout(time.Duration(c.TimeoutMs)*time.Millisecond))
	}
	return options
}

// process is what GroupTransactSession is for: it sends the offsets of all that was polled.
func (p *program) process(ctx context.Context, c *command) (answer, error) {
	session, err := kgo.NewGroupTransactSession(append(p.transactional(c),
		kgo.SeedBrokers(p.bootstrap),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	taken := 0
	for taken < c.Count {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			copied := &kgo.Record{Topic: c.Target, Partition: r.Partition, Key: r.Key, Value: r.Value}
			if err := session.ProduceSync(ctx, copied).FirstErr(); err != nil {
				return nil, err
			}
			taken++
		}
	}
	ended, err := session.End(ctx, kgo.TransactionEndTry(c.Commit))
	if err == nil && ended != c.Commit {
		err = errors.New("the session aborted what was to be committed")
	}
	return answer{"records": taken}, err
}

// Consuming

func (p *program) open(ctx context.Context, c *command) (answer, error) {
	o := &open{news: make(chan struct{}, 1), assigned: map[string]map[int32]bool{}, done: make(chan struct{})}
	options := []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())}
	if c.Isolation == "read_uncommitted" {
		options[0] = kgo.FetchIsolationLevel(kgo.ReadUncommitted())
	}
	if c.MaxPartition > 0 {
		options = append(options, kgo.FetchMaxPartitionBytes(c.MaxPartition))
	}
	if c.FetchWaitMs > 0 {
		options = append(options, kgo.FetchMaxWait(time.Duration(c.FetchWaitMs)*time.Millisecond))
	}
	if c.FetchMinBytes > 0 {
		options = append(options, kgo.FetchMinBytes(c.FetchMinBytes))
	}
	if c.Assign != nil {
		starts, err := p.starts(ctx, c.Assign)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.ConsumePartitions(starts))
	} else {
		options = append(options, o.groupOptions(c)...)
	}
	client, err := p.client(options...)
	if err != nil {
		return nil, err
	}
	o.client = client
	p.consumers[c.ID] = o
	go o.poll()
	return answer{}, nil
}

func (p *program) starts(ctx context.Context, places []place) (map[string]map[int32]kgo.Offset, error) {
	starts := map[string]map[int32]kgo.Offset{}
	for _, each := range places {
		offset, err := p.resolve(ctx, each)
		if err != nil {
			return nil, err
		}
		if starts[each.topic] == nil {
			starts[each.topic] = map[int32]kgo.Offset{}
		}
		starts[each.topic][each.partition] = kgo.NewOffset().At(offset)
	}
	return starts, nil
}

func (p *program) resolve(ctx context.Context, at place) (int64, error) {
	var offset int64
	if json.Unmarshal(at.at, &offset) == nil {
		return offset, nil
	}
	var time struct{ Timestamp int64 }
	if json.Unmarshal(at.at, &time) == nil {
		return p.listed(ctx, at.topic, at.partition, time.Timestamp)
	}
	var name string
	if err := json.Unmarshal(at.at, &name); err != nil {
		return 0, err
	}
	return p.listed(ctx, at.topic, at.partition, name)
}

func (o *open) groupOptions(c *command) []kgo.Opt {
	o.group = true
	session := 30 * time.Second
	if c.SessionTimeoutMs > 0 {
		session = time.Duration(c.SessionTimeoutMs) * time.Millisecond
	}
	reset := kgo.NewOffset().AtStart()
	if c.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	balancer := kgo.RangeBalancer()
	switch c.Assignor {
	case "roundrobin":
		balancer = kgo.RoundRobinBalancer()
	case "sticky":
		balancer = kgo.StickyBalancer()
	case "cooperative-sticky":
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topics...),
		kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(reset),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(min(250*time.Millisecond, session/4)),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { o.assign(m, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { o.assign(m, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { o.assign(m, false) }),
	}
	if c.Instance != "" {
		options = append(options, kgo.InstanceID(c.Instance))
	}
	return options
}

func (o *open) assign(partitions map[string][]int32, mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for topic, numbers := range partitions {
		if o.assigned[topic] == nil {
			o.assigned[topic] = map[int32]bool{}
		}
		for _, number := range numbers {
			o.assigned[topic][number] = mine
		}
	}
}

func (o *open) assignment() [][2]any {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := [][2]any{}
	for topic, numbers := range o.assigned {
		for number, mine := range numbers {
			if mine {
				found = append(found, [2]any{topic, number})
			}
		}
	}
	return found
}

func (o *open) poll() {
	defer close(o.done)
	for {
		fetches := o.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		o.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) { o.failure = err })
		fetches.EachRecord(func(r *kgo.Record) {
			millis := r.Timestamp.UnixMilli()
			headers := []headerTup{}
			for _, h := range r.Headers {
				headers = append(headers, headerTup{h.Key, h.Value})
			}
			o.arrived = append(o.arrived, record{r.Topic, &r.Partition, r.Offset, &millis, r.Key, r.Value, headers})
		})
		o.mu.Unlock()
		select {
		case o.news <- struct{}{}:
		default:
		}
	}
}

func (o *open) take(count int, timeout time.Duration) (answer, error) {
	deadline := time.After(timeout)
	for late := false; ; {
		o.mu.Lock()
		if late || len(o.arrived) >= count {
			taken := o.arrived[:min(count, len(o.arrived))]
			o.arrived = append([]record(nil), o.arrived[len(taken):]...)
			failure := o.failure
			o.failure = nil
			o.mu.Unlock()
			if len(taken) == 0 && failure != nil && count > 0 {
				return nil, failure
			}
			return answer{"records": append([]record{}, taken...)}, nil
		}
		o.mu.Unlock()
		select {
		case <-o.news:
		case <-deadline:
			late = true
		}
	}
}

func (o *open) close() {
	if o.group {
		o.client.LeaveGroup()
	}
	o.client.Close()
	<-o.done
}

func (p *program) pause(c *command) (answer, error) {
	var places []place
	if err := json.Unmarshal(c.Partitions, &places); err != nil {
		return nil, err
	}
	partitions := map[string][]int32{}
	for _, each := range places {
		partitions[each.topic] = append(partitions[each.topic], each.partition)
	}
	if c.Op == "pause" {
		p.consumers[c.ID].client.PauseFetchPartitions(partitions)
	} else {
		p.consumers[c.ID].client.ResumeFetchPartitions(partitions)
	}
	return answer{}, nil
}

func (p *program) commit(ctx context.Context, c *command) (answer, error) {
	client := p.consumers[c.ID].client
	offsets, err := wanted(c.Offsets)
	if err != nil {
		return nil, err
	}
	records := []*kgo.Record{}
	offsets.Each(func(o kadm.Offset) {
		records = append(records, &kgo.Record{Topic: o.Topic, Partition: o.Partition, Offset: o.At - 1, LeaderEpoch: -1})
	})
	return answer{}, client.CommitRecords(ctx, records...)
}

func wanted(places []place) (kadm.Offsets, error) {
	offsets := kadm.Offsets{}
	for _, each := range places {
		var at int64
		if err := json.Unmarshal(each.at, &at); err != nil {
			return nil, err
		}
		offsets.AddOffset(each.topic, each.partition, at, -1)
	}
	return offsets, nil
}

// Asking

func (p *program) metadata(ctx context.Context) (answer, error) {
	found, err := p.admin.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	topics := answer{}
	for name, topic := range found.Topics {
		topics[name] = len(topic.Partitions)
	}
	return answer{"brokers": len(found.Brokers), "topics": topics}, nil
}

func (p *program) listed(ctx context.Context, topic string, partition int32, at any) (int64, error) {
	var found kadm.ListedOffsets
	var err error
	switch at := at.(type) {
	case int64:
		found, err = p.admin.ListOffsetsAfterMilli(ctx, at, topic)
	case string:
		switch at {
		case "earliest":
			found, err = p.admin.ListStartOffsets(ctx, topic)
		case "latest":
			found, err = p.admin.ListEndOffsets(ctx, topic)
		case "max_timestamp":
			found, err = p.admin.ListMaxTimestampOffsets(ctx, topic)
		default:
			return 0, fmt.Errorf("unknown position %q", at)
		}
	}
	if err != nil {
		return 0, err
	}
	offset, _ := found.Lookup(topic, partition)
	return offset.Offset, offset.Err
}

func (p *program) offsets(ctx context.Context, c *command) (answer, error) {
	var partitions []int32
	if err := json.Unmarshal(c.Partitions, &partitions); err != nil {
		return nil, err
	}
	var at any
	var millis int64
	if json.Unmarshal(c.At, &millis) == nil {
		at = millis
	} else {
		at = strings.Trim(string(c.At), `"`)
	}
	offsets := []int64{}
	for _, partition := range partitions {
		offset, err := p.listed(ctx, c.Topic, partition, at)
		if err != nil {
			return nil, err
		}
		offsets = append(offsets, offset)
	}
	return answer{"offsets": offsets}, nil
}

func (p *program) committed(ctx context.Context, c *command) (answer, error) {
	var partitions []int32
	if err := json.Unmarshal(c.Partitions, &partitions); err != nil {
		return nil, err
	}
	found, err := p.admin.FetchOffsets(ctx, c.Group)
	if err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, partition := range partitions {
		offset, known := found.Lookup(c.Topic, partition)
		if !known {
			offset.At = -1
		}
		offsets = append(offsets, offset.At)
	}
	return answer{"offsets": offsets}, nil
}

// Administering

func (p *program) administer(ctx context.Context, c *command) (answer, error) {
	switch c.Op {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range c.Configs {
			configs[name] = &value
		}
		var partitions int32
		if err := json.Unmarshal(c.Partitions, &partitions); err != nil {
			return nil, err
		}
		_, err := p.admin.CreateTopic(ctx, partitions, 1, configs, c.Topic)
		return answer{}, err
	case "delete_topic":
		_, err := p.admin.DeleteTopic(ctx, c.Topic)
		return answer{}, err
	case "create_partitions":
		found, err := p.admin.UpdatePartitions(ctx, c.Count, c.Topic)
		return answer{}, firstOf(err, found.Error())
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(c.Topic, c.Partition, c.Before, -1)
		found, err := p.admin.DeleteRecords(ctx, offsets)
		result, _ := found.Lookup(c.Topic, c.Partition)
		return answer{"low_watermark": result.LowWatermark}, firstOf(err, result.Err)
	case "describe_config":
		return p.describeConfig(ctx, c)
	case "alter_config":
		return p.alterConfig(ctx, c)
	case "groups":
		found, err := p.admin.ListGroups(ctx)
		return answer{"groups": found.Groups()}, err
	case "describe_group":
		return p.describeGroup(ctx, c)
	case "delete_group":
		_, err := p.admin.DeleteGroup(ctx, c.Group)
		return answer{}, err
	case "delete_offsets":
		var partitions []int32
		if err := json.Unmarshal(c.Partitions, &partitions); err != nil {
			return nil, err
		}
		set := kadm.TopicsSet{}
		set.Add(c.Topic, partitions...)
		found, err := p.admin.DeleteOffsets(ctx, c.Group, set)
		return answer{}, firstOf(err, found.Error())
	case "alter_offsets":
		offsets, err := wanted(c.Offsets)
		if err != nil {
			return nil, err
		}
		return answer{}, p.admin.CommitAllOffsets(ctx, c.Group, offsets)
	}
	return nil, fmt.Errorf("unknown op %q", c.Op)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *program) describeConfig(ctx context.Context, c *command) (answer, error) {
	found, err := p.admin.DescribeTopicConfigs(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := found.On(c.Topic, nil)
	configs := answer{}
	for _, each := range resource.Configs {
		configs[each.Key] = each.Value
	}
	return answer{"configs": configs}, firstOf(err, resource.Err)
}

func (p *program) alterConfig(ctx context.Context, c *command) (answer, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range c.Set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	for _, name := range c.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	found, err := p.admin.AlterTopicConfigs(ctx, changes, c.Topic)
	if err != nil {
		return nil, err
	}
	result, err := found.On(c.Topic, nil)
	return answer{}, firstOf(err, result.Err)
}

func (p *program) describeGroup(ctx context.Context, c *command) (answer, error) {
	described, err := p.admin.DescribeGroups(ctx, c.Group)
	if err != nil {
		return nil, err
	}
	found := described[c.Group]
	members := [][][2]any{}
	for _, member := range found.Members {
		places := [][2]any{}
		if assigned, ok := member.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				for _, number := range topic.Partitions {
					places = append(places, [2]any{topic.Topic, number})
				}
			}
		}
		members = append(members, places)
	}
	return answer{"state": found.State, "assignor": found.Protocol, "members": members}, found.Err
}
