// What the embed says, in three languages. A language that is not here falls back to English.

const WORDS = {
  en: {
    orders: "Orders", deliveries: "Deliveries", revenue: "Revenue", ordersCount: "Orders", basket: "Average order", late: "Late deliveries", onTime: "On time",
    revenueByMonth: "Revenue by month", revenueByRegion: "Revenue by region", ordersByProduct: "Orders by product",
    lateByMonth: "Late deliveries by month", lateByRegion: "Late deliveries by region", lateByProduct: "Late deliveries by product",
    by: { "orders.region": "by region", "orders.product": "by product", "orders.month": "by month" }, all: "All", back: "Back", csv: "CSV", saveCsv: "Save as CSV:",
    region: "Region", product: "Product", home: "Home", workbook: "Quarterly planning", shared: "Shared with me", greeting: "Good morning, Marta", recent: "Recently opened",
    edited: "edited yesterday", sharedBy: "shared by Jonas", quarter: "Quarter", plan: "Plan", actual: "Actual",
    ask: "Ask a question about your numbers", send: "Ask", thinking: "Thinking", failed: "I could not work this out: the query ran out of time.", chat: "Ask your numbers",
    intro: "Ask in your own words. Three to begin with, one for each way it can end:", answers: "is answered", fails: "fails", hangs: "is never answered",
    best: "Which region grew most?", forecast: "Forecast next year", every: "Compare every order ever made",
    answer: (region, share) => `${region}: revenue there is up ${share} on the first half of the period.`, generic: (sum) => `In the last twelve months, revenue came to ${sum}.`,
    trouble: "Trouble, to order", timeout: "A query times out", expire: "The session expires", unknown: "A new kind of event",
    timedOut: "This query ran out of time.", retry: "Try again", expired: "Your session has expired.", reload: "Sign in again", nowhere: "There is no such page in here.", alone: "This page is made to stand inside another one.", byVendor: "Charts by Marl, a pretend vendor",
  },
  de: {
    orders: "Bestellungen", deliveries: "Lieferungen", revenue: "Umsatz", ordersCount: "Bestellungen", basket: "Ø Bestellung", late: "Verspätet", onTime: "Pünktlich",
    revenueByMonth: "Umsatz nach Monat", revenueByRegion: "Umsatz nach Region", ordersByProduct: "Bestellungen nach Produkt",
    lateByMonth: "Verspätete Lieferungen nach Monat", lateByRegion: "Verspätete Lieferungen nach Region", lateByProduct: "Verspätete Lieferungen nach Produkt",
    by: { "orders.region": "nach Region", "orders.product": "nach Produkt", "orders.month": "nach Monat" }, all: "Alle", back: "Zurück", csv: "CSV", saveCsv: "Als CSV speichern:",
    region: "Region", product: "Produkt", home: "Start", workbook: "Quartalsplanung", shared: "Mit mir geteilt", greeting: "Guten Morgen, Marta", recent: "Zuletzt geöffnet",
    edited: "gestern bearbeitet", sharedBy: "geteilt von Jonas", quarter: "Quartal", plan: "Plan", actual: "Ist",
    ask: "Stellen Sie eine Frage zu Ihren Zahlen", send: "Fragen", thinking: "Denkt nach", failed: "Das ließ sich nicht beantworten: Die Abfrage hat zu lange gedauert.", chat: "Fragen Sie Ihre Zahlen",
    intro: "Fragen Sie mit Ihren Worten. Drei zum Anfang, für jedes Ende eine:", answers: "wird beantwortet", fails: "scheitert", hangs: "bleibt ohne Antwort",
    best: "Welche Region wuchs am meisten?", forecast: "Prognose für nächstes Jahr", every: "Alle Bestellungen vergleichen",
    answer: (region, share) => `${region}: Der Umsatz liegt dort ${share} über der ersten Hälfte des Zeitraums.`, generic: (sum) => `In den letzten zwölf Monaten betrug der Umsatz ${sum}.`,
    trouble: "Ärger auf Bestellung", timeout: "Abfrage läuft ab", expire: "Sitzung läuft ab", unknown: "Neue Ereignisart",
    timedOut: "Diese Abfrage hat zu lange gedauert.", retry: "Noch einmal", expired: "Ihre Sitzung ist abgelaufen.", reload: "Neu anmelden", nowhere: "Diese Seite gibt es hier nicht.", alone: "Diese Seite gehört in eine andere.", byVendor: "Diagramme von Marl, einem erfundenen Anbieter",
  },
  fr: {
    orders: "Commandes", deliveries: "Livraisons", revenue: "Chiffre d’affaires", ordersCount: "Commandes", basket: "Panier moyen", late: "En retard", onTime: "À l’heure",
    revenueByMonth: "Chiffre d’affaires par mois", revenueByRegion: "Chiffre d’affaires par région", ordersByProduct: "Commandes par produit",
    lateByMonth: "Livraisons en retard par mois", lateByRegion: "Livraisons en retard par région", lateByProduct: "Livraisons en retard par produit",
    by: { "orders.region": "par région", "orders.product": "par produit", "orders.month": "par mois" }, all: "Tout", back: "Retour", csv: "CSV", saveCsv: "Enregistrer en CSV :",
    region: "Région", product: "Produit", home: "Accueil", workbook: "Plan trimestriel", shared: "Partagé avec moi", greeting: "Bonjour, Marta", recent: "Ouverts récemment",
    edited: "modifié hier", sharedBy: "partagé par Jonas", quarter: "Trimestre", plan: "Prévu", actual: "Réel",
    ask: "Posez une question sur vos chiffres", send: "Demander", thinking: "Réflexion", failed: "Impossible de répondre : la requête a duré trop longtemps.", chat: "Interrogez vos chiffres",
    intro: "Demandez avec vos mots. Trois pour commencer, une pour chaque issue :", answers: "obtient une réponse", fails: "échoue", hangs: "reste sans réponse",
    best: "Quelle région a le plus progressé ?", forecast: "Prévoir l’an prochain", every: "Comparer toutes les commandes",
    answer: (region, share) => `${region} : le chiffre d’affaires y dépasse de ${share} la première moitié de la période.`, generic: (sum) => `Sur douze mois, le chiffre d’affaires atteint ${sum}.`,
    trouble: "Ennuis sur commande", timeout: "Une requête expire", expire: "La session expire", unknown: "Un nouvel événement",
    timedOut: "Cette requête a duré trop longtemps.", retry: "Réessayer", expired: "Votre session a expiré.", reload: "Se reconnecter", nowhere: "Cette page n’existe pas ici.", alone: "Cette page est faite pour être dans une autre.", byVendor: "Graphiques par Marl, fournisseur imaginaire",
  },
};

/** The words and formats of a locale: a full code, a short one or a regional variant (spec 6.5). */
export function speak(asked) {
  const locale = known(asked);
  const language = new Intl.Locale(locale).language;
  const words = WORDS[language] ?? WORDS.en;
  const spoken = language in WORDS ? locale : "en";
  return {
    ...words,
    locale: spoken,
    money: (value) => new Intl.NumberFormat(spoken, { style: "currency", currency: "EUR", maximumFractionDigits: 0 }).format(value),
    price: (value) => new Intl.NumberFormat(spoken, { style: "currency", currency: "EUR" }).format(value),
    short: (value) => new Intl.NumberFormat(spoken, { notation: "compact", maximumFractionDigits: 0 }).format(value),
    number: (value) => new Intl.NumberFormat(spoken).format(value),
    share: (value) => new Intl.NumberFormat(spoken, { style: "percent", maximumFractionDigits: 1 }).format(value),
    month: (value) => new Intl.DateTimeFormat(spoken, { month: "short", timeZone: "UTC" }).format(new Date(value)),
  };
}

function known(asked) {
  try {
    return Intl.getCanonicalLocales(asked)[0] ?? "en";
  } catch {
    return "en"; // no language tag at all
  }
}
