/** A thing that a call names does not exist. */
const notFound = <A extends string | number>(code: number, thing: string, message: (name: A) => string) => ({
  code,
  status: 404,
  when: `${thing} does not exist`,
  message,
});

/**
 * Every error of the API: its code, HTTP status and text. Names, codes and texts are those that Mandrill's clients
 * know; the statuses tell client errors from server errors, for monitoring. Errors that Mandrill does not have use
 * their status as code.
 */
export const ERRORS = {
  Invalid_Key: { code: -1, status: 401, when: 'the API key is not valid', message: () => 'Invalid API key' },
  ValidationError: {
    code: -2,
    status: 422,
    when: 'parameters are invalid, or missing when required',
    message: (faults: Faults) => `Validation error: ${JSON.stringify(faults)}`,
  },
  GeneralError: {
    code: -100,
    status: 500,
    when: 'an internal error, which is logged with its cause; try again later',
    message: () => 'An unknown error occurred processing your request. Please try again later.',
  },
  ServiceUnavailable: {
    code: -2,
    status: 503,
    when: 'the database, the queue or the history is unavailable; try again later',
    message: () => 'Service Temporarily Unavailable',
  },
  RequestLimitExceeded: {
    code: 429,
    status: 429,
    when:
      'too many calls by the account in a second; too many connections, large bodies or wrong keys from one IP ' +
      'address (wrong keys never block a valid one); or another limit that the operation names. Try again later',
    message: () => 'Too Many Requests attempted recently',
  },
  RequestTimeout: {
    code: 408,
    status: 408,
    when: 'the request body took too long to arrive',
    message: () => 'The request body took too long to arrive',
  },
  MethodNotAllowed: {
    code: 405,
    status: 405,
    when: 'an operation was called with a method other than POST',
    message: () => 'Call operations with POST and a JSON body that contains the key and the parameters; see /docs',
  },
  Unknown_Job: {
    code: 404,
    status: 404,
    when: 'the job does not exist, or its host no longer has a record of it',
    message: (id: string) => `No job exists with the id ${id}`,
  },
  Unknown_Operation: { code: 404, status: 404, when: 'the operation does not exist', message: (hint: string) => hint },
  Endpoint_Held: {
    code: 409,
    status: 409,
    when: 'the operator of the service has paused the endpoint; only the operator can change that',
    message: (until: string) =>
      `The operator of this service has paused this endpoint until ${until}, and only the operator can change that`,
  },
  Unknown_Endpoint: {
    code: 404,
    status: 404,
    when: 'no route or webhook of the account has the URL, and no deliveries wait for it',
    message: (url: string) => `No route or webhook of the account has the URL ${url}, and no deliveries wait for it`,
  },
  Unknown_Lease: {
    code: 404,
    status: 404,
    when: 'the lease does not exist or has ended: its message was leased again, or its delivery has ended',
    message: (lease: string) => `Unknown lease ${lease}: its message was leased again, or its delivery has ended`,
  },

  Invalid_Tag_Name: {
    code: 1,
    status: 400,
    when: 'the tag does not exist or has invalid characters',
    message: (tag: string) => `no such tag "${tag}"`,
  },
  Unknown_Sender: notFound(2, 'the sender', (address: string) => `No such sender "${address}"`),
  Unknown_Webhook: notFound(3, 'the webhook', (id: number) => `Unknown hook ID ${id}`),
  Invalid_Reject: {
    code: 4,
    status: 404,
    when: 'the address is not in the rejection list',
    message: () => 'Email address is not in the rejection list and is not invalid',
  },
  Unknown_Template: notFound(5, 'the template', (name: string) => `No such template "${name}"`),
  Invalid_Template: {
    code: 6,
    status: 422,
    when: 'the template name already exists or has invalid characters',
    message: (why: string) => why,
  },
  Unknown_Url: {
    code: 7,
    status: 404,
    when: 'the URL was not seen in a tracked link',
    message: () => 'The requested URL has not been seen in a tracked link',
  },
  Unknown_Domain: notFound(8, 'the sender domain', (domain: string) => `No such domain "${domain}"`),
  Unknown_InboundDomain: notFound(8, 'the inbound domain', (domain: string) => `Unknown Inbound Domain: ${domain}`),
  Unknown_Export: notFound(9, 'the export job', (id: string) => `Unknown Export: ${id}`),
  PaymentRequired: { code: 10, status: 402, when: 'the feature requires payment', message: (why: string) => why },
  Unknown_Message: {
    code: 11,
    status: 404,
    when: 'the message does not exist, or its content is no longer kept',
    message: (id: string, late?: 'late') =>
      late ? `It is too late: the message ${id} is being sent, or was sent` : `No message exists with the id ${id}`,
  },
  Unknown_Subaccount: notFound(12, 'the subaccount id', (id: string) => `No subaccount exists with the id ${id}`),
  Unknown_IP: notFound(13, 'the dedicated IP', (ip: string) => `No dedicated IP with address ${ip}`),
  IP_ProvisionLimit: {
    code: 14,
    status: 400,
    when: 'a provisioning request is already pending',
    message: () => 'A dedicated IP provisioning request is already pending.',
  },
  Unknown_Pool: notFound(15, 'the IP pool', (pool: string) => `No pool named ${pool}`),
  Invalid_EmptyDefaultPool: {
    code: 16,
    status: 400,
    when: 'the last IP cannot leave the default pool',
    message: () => 'You cannot remove the last IP from your default pool',
  },
  Invalid_DeleteDefaultPool: {
    code: 17,
    status: 400,
    when: 'the default pool cannot be deleted',
    message: () => 'You cannot delete your default pool',
  },
  Invalid_DeleteNonEmptyPool: {
    code: 18,
    status: 400,
    when: 'non-empty pools cannot be deleted',
    message: () => 'Non-empty pools cannot be deleted',
  },
  Invalid_CustomDNS: {
    code: 19,
    status: 400,
    when: 'the domain is not configured for use as the custom reverse DNS',
    message: () => "The domain name is not configured for use as the dedicated IP's custom reverse DNS.",
  },
  Invalid_CustomDNSPending: {
    code: 20,
    status: 400,
    when: 'a custom DNS change for the IP is pending',
    message: () => 'A custom DNS change for this dedicated IP is currently pending.',
  },
  Unknown_TrackingDomain: notFound(
    21,
    'the tracking domain',
    (domain: string) => `No tracking domain exists with the name '${domain}'`,
  ),
  Unknown_InboundRoute: notFound(22, 'the inbound route', (id: string) => `No route exists with the id ${id}`),
  Metadata_FieldLimit: {
    code: 23,
    status: 400,
    when: 'the account has reached its limit of metadata fields',
    message: () => 'Custom metadata field limit reached.',
  },
  Unknown_MetadataField: notFound(24, 'the metadata field', (name: string) => `Invalid metadata field name: ${name}`),
  PoorReputation: {
    code: 25,
    status: 400,
    when: 'the reputation is too low to continue',
    message: () => 'This feature is not available for accounts with a poor reputation.',
  },
  NoSendingHistory: {
    code: 26,
    status: 400,
    when: 'the account has not started sending',
    message: () => 'This feature is not available for accounts without a sending history.',
  },
  Invalid_Verified_Domain: {
    code: 28,
    status: 403,
    when: 'the sender domain is verified, and `confirm` was not given',
    message: (domain: string) => `Cannot delete verified domain "${domain}" via API without confirm`,
  },
  Invalid_Verified_TrackingDomain: {
    code: 29,
    status: 403,
    when: 'the tracking domain is in use, and `confirm` was not given',
    message: (domain: string) => `Cannot delete verified tracking domain "${domain}" via API without confirm`,
  },
  Unknown_Key: {
    code: 404,
    status: 404,
    when: 'the API key does not exist, or was revoked',
    message: (id: string) => `No API key exists with the id ${id}`,
  },
  Invalid_OwnKey: {
    code: 400,
    status: 400,
    when: 'the key of the call cannot revoke itself',
    message: () => 'A key cannot revoke itself: make the call with another key of the account',
  },
} as const;

export type ErrorName = keyof typeof ERRORS;
/** The faults of an input: field to text. */
export type Faults = Readonly<Record<string, string>>;
/** Arguments of an error's message. */
export type About<N extends ErrorName> = Parameters<(typeof ERRORS)[N]['message']>;

/** Errors that every operation may answer, whatever it declares. */
export const COMMON_ERRORS = [
  'Invalid_Key',
  'ValidationError',
  'GeneralError',
  'ServiceUnavailable',
  'RequestLimitExceeded',
] as const satisfies readonly ErrorName[];

export type CommonError = (typeof COMMON_ERRORS)[number];

/** Errors that may occur before a call reaches its operation. */
export const TRANSPORT_ERRORS = [
  'Unknown_Operation',
  'MethodNotAllowed',
  'RequestTimeout',
] as const satisfies readonly ErrorName[];

/** An error meant for the client. */
export class Refusal extends Error {
  override readonly name: ErrorName;
  readonly code: number;
  readonly status: number;
  /** With 429: seconds to wait before the next attempt. */
  readonly retryAfterS: number;

  constructor(
    name: ErrorName,
    message: string,
    code: number = ERRORS[name].code,
    status: number = ERRORS[name].status,
    retryAfterS = 60,
  ) {
    super(message);
    this.retryAfterS = retryAfterS;
    this.name = name;
    this.code = code;
    this.status = status;
  }
}

export function refusal<N extends ErrorName>(name: N, ...about: About<N>): Refusal {
  const errors: { readonly [E in ErrorName]: { message(...about: About<E>): string } } = ERRORS;
  return new Refusal(name, errors[name].message(...about));
}

/** Returns `found`. Throws the refusal if it is undefined. */
export function orRefuse<T, N extends ErrorName>(found: T | undefined, name: N, ...about: About<N>): T {
  if (found === undefined) throw refusal(name, ...about);
  return found;
}

/** A ValidationError for invalid parameters: code -2. */
export function invalid(faults: Faults, status: number = ERRORS.ValidationError.status): Refusal {
  return new Refusal('ValidationError', ERRORS.ValidationError.message(faults), ERRORS.ValidationError.code, status);
}

/** A ValidationError for a missing parameter: code -1, as Mandrill answers. */
export function missing(parameter: string): Refusal {
  return new Refusal('ValidationError', `You must specify a ${parameter} value`, -1);
}

/** A RequestLimitExceeded with the seconds to wait before the next attempt. */
export function tooMany(retryAfterS: number): Refusal {
  const { code, status, message } = ERRORS.RequestLimitExceeded;
  return new Refusal('RequestLimitExceeded', message(), code, status, retryAfterS);
}

/** The error as the API answers it. */
export function toEnvelope({ code, name, message }: Refusal) {
  return { status: 'error' as const, code, name, message: message.toWellFormed() };
}
