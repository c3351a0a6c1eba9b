/**
 * Every error of the documented interface: its code there, or Mandrill's where the document has none, the
 * HTTP status that says whose fault it is, and what it says, in Mandrill's words where they are known.
 */
export const ERRORS = {
  Invalid_Tag_Name: { code: 1, status: 400, says: /^no such tag ".+"$/ },
  Unknown_Sender: { code: 2, status: 404, says: /^No such sender ".+"$/ },
  Unknown_Webhook: { code: 3, status: 404, says: /^Unknown hook ID \d+$/ },
  Invalid_Reject: { code: 4, status: 404, says: /^Email address is not in the rejection list and is not invalid$/ },
  Unknown_Template: { code: 5, status: 404, says: /^No such template ".+"$/ },
  Invalid_Template: { code: 6, status: 422, says: /^A template with name ".+" already exists$/ },
  Unknown_InboundDomain: { code: 8, status: 404, says: /^Unknown Inbound Domain: \S+$/ },
  Unknown_Export: { code: 9, status: 404, says: /^Unknown Export: .+$/ },
  PaymentRequired: { code: 10, status: 402, says: /./ },
  Unknown_Subaccount: { code: 12, status: 404, says: /^No subaccount exists with the id .+$/ },
  Unknown_IP: { code: 13, status: 404, says: /^No dedicated IP with address [\d.]+$/ },
  IP_ProvisionLimit: { code: 14, status: 400, says: /pending/ },
  Unknown_Pool: { code: 15, status: 404, says: /^No pool named .+$/ },
  Invalid_EmptyDefaultPool: { code: 16, status: 400, says: /^You cannot remove the last IP from your default pool$/ },
  Invalid_DeleteDefaultPool: { code: 17, status: 400, says: /^You cannot delete your default pool$/ },
  Invalid_DeleteNonEmptyPool: { code: 18, status: 400, says: /non-empty pools cannot be deleted/i },
  Invalid_CustomDNS: {
    code: 19,
    status: 400,
    says: /^The domain name is not configured for use as the dedicated IP's custom reverse DNS\.$/,
  },
  Invalid_CustomDNSPending: {
    code: 20,
    status: 400,
    says: /^A custom DNS change for this dedicated IP is currently pending\.$/,
  },
  Unknown_InboundRoute: { code: 22, status: 404, says: /^No route exists with the id [\d.]+$/ },
  PoorReputation: {
    code: 25,
    status: 400,
    says: /^This feature is not available for accounts with a poor reputation\.$/,
  },
  NoSendingHistory: { code: 26, status: 400, says: /./ },
  ServiceUnavailable: { code: -2, status: 503, says: /^Service Temporarily Unavailable$/ },
} as const;
