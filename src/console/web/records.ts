import type { Answer } from './operations.ts';

// Names for parts of answers. Times are texts in UTC.

export type Mail = Answer<'inbound/search'>['mails'][number];
export type MailState = Mail['state'];
export type Conversation = Answer<'inbound/conversation'>;
export type Causes = Answer<'inbound/causes'>;
export type Cause = Causes['causes'][number];
export type MailStory = Answer<'inbound/info'>;
export type TimelineEntry = MailStory['timeline'][number];
type Delivery = MailStory['deliveries'][number];
export type Scan = NonNullable<Delivery['scan']>;
export type AttemptDetail = NonNullable<Delivery['attempts'][number]['detail']>;
export type Content = Answer<'inbound/content'>;
export type MessageFacts = NonNullable<Content['facts']>;
export type Refusal = Answer<'inbound/refusals'>['refusals'][number];
export type Endpoint = Answer<'endpoints/list'>[number];
export type EndpointDetail = Answer<'endpoints/info'>;
export type Figures = EndpointDetail['hour'];
export type InboundDomain = Answer<'inbound/domains'>[number];
export type DomainServers = Answer<'inbound/domain-servers'>;
export type DomainRecord = DomainServers['records'][number];
export type DomainServer = DomainRecord['servers'][number];
export type InboundRoute = Answer<'inbound/routes'>[number];
export type Trial = Answer<'inbound/try'>;
export type RejectEntry = Answer<'rejects/list'>[number];
export type SentMessage = Answer<'messages/search'>[number];
export type SentState = SentMessage['state'];
export type Visit = SentMessage['opens_detail'][number];
export type SentStory = Answer<'messages/info'>;
export type MailAttempt = NonNullable<SentStory['delivery']>['attempts'][number];
export type Connection = MailAttempt['connections'][number];
export type ApiKey = Answer<'keys/list'>[number];
export type Action = Answer<'actions/list'>['actions'][number];

// Of the host, which only operators ask.

export type HostAccount = Answer<'host/accounts'>['accounts'][number];
export type HostAction = Answer<'host/actions'>['actions'][number];
export type HostPerson = Answer<'host/people'>['people'][number];
export type Role = HostPerson['role'];
export type HostSession = Answer<'host/sessions'>['sessions'][number];
/** A link that lets a person in once. */
export type EnterLink = Answer<'host/add-person'>;
export type HostOverview = Answer<'host/overview'>;
export type HostOfStore = Answer<'host/hosts'>['hosts'][number];
export type HostNeed = HostOverview['needs'][number];
export type HostSeries = Answer<'host/series'>;
export type HostTask = Answer<'host/tasks'>['tasks'][number];
export type HostSetting = Answer<'host/settings'>['settings'][number];
export type HostLog = Answer<'host/log'>;
export type HostLogLine = HostLog['lines'][number];
export type WaitingQueue = Answer<'host/queue'>;
export type Waiting = WaitingQueue['rows'][number];
export type HostExamination = Answer<'host/examine'>;
export type HostCheck = HostExamination['checks'][number];
export type HostListener = Answer<'host/listeners'>['listeners'][number];
